/* As on x86-64: the hooks leave the caller's frame as it is and jump on. */
    .text
    .globl dlsym
    .type dlsym, %function
dlsym:
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
    .size dlsym, .-dlsym

    .globl dlopen
    .type dlopen, %function
dlopen:
    stp x29, x30, [sp, #-32]!
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl cot_enter_dlopen
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    and w1, w1, #0xfffffff7 /* RTLD_DEEPBIND */
    br x16
    .size dlopen, .-dlopen

    .section .note.GNU-stack, "", %progbits
