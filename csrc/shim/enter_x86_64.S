/* dlsym and dlopen look at their return address: RTLD_NEXT and RPATH depend on who calls. So the hooks leave the
 * caller's frame as it is and jump on. */
/* Under both versions that glibc has given them: a program asks for the one that it was linked with, and another preload
 * that looks for the next one by version must find this one too. */
    .macro EXPORT_AS name
    .globl first_\name
    .set first_\name, enter_\name
    .symver first_\name, \name@GLIBC_2.2.5
    .globl current_\name
    .set current_\name, enter_\name
    .symver current_\name, \name@@GLIBC_2.34
    .endm

    .text
    .type enter_dlsym, @function
enter_dlsym:
    push %rdi
    push %rsi
    sub $8, %rsp
    call cot_enter_dlsym
    add $8, %rsp
    pop %rsi
    pop %rdi
    test %rax, %rax
    jz 1f
    ret
1:  jmp *%rdx
    .size enter_dlsym, .-enter_dlsym
    EXPORT_AS dlsym

    .type enter_dlopen, @function
enter_dlopen:
    push %rdi
    push %rsi
    sub $8, %rsp
    call cot_enter_dlopen
    add $8, %rsp
    pop %rsi
    pop %rdi
    and $~8, %esi /* RTLD_DEEPBIND: the library would find its own functions before the hooks */
    jmp *%rax
    .size enter_dlopen, .-enter_dlopen
    EXPORT_AS dlopen

    .section .note.GNU-stack, "", @progbits
