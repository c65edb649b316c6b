/* As on x86-64: the hooks leave the caller's frame as it is and jump on. */
/* Under both versions that glibc has given them: a program asks for the one that it was linked with, and another preload
 * that looks for the next one by version must find this one too. */
    .macro EXPORT_AS name
    .globl first_\name
    .set first_\name, enter_\name
    .symver first_\name, \name@GLIBC_2.17
    .globl current_\name
    .set current_\name, enter_\name
    .symver current_\name, \name@@GLIBC_2.34
    .endm

    .text
    .type enter_dlsym, %function
enter_dlsym:
    stp x29, x30, [sp, #-32]!
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl cot_enter_dlsym
    mov x16, x1
    mov x17, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    cbz x17, 1f
    mov x0, x17
    ret
1:  br x16
    .size enter_dlsym, .-enter_dlsym
    EXPORT_AS dlsym

    .type enter_dlopen, %function
enter_dlopen:
    stp x29, x30, [sp, #-32]!
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl cot_enter_dlopen
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    and w1, w1, #0xfffffff7 /* RTLD_DEEPBIND */
    br x16
    .size enter_dlopen, .-enter_dlopen
    EXPORT_AS dlopen

    .section .note.GNU-stack, "", %progbits
