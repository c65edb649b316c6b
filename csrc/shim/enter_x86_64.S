/* dlsym and dlopen look at their return address: RTLD_NEXT and RPATH depend on who calls. So the hooks leave the
 * caller's frame as it is and jump on. */
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
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
    .size dlsym, .-dlsym

    .globl dlopen
    .type dlopen, @function
dlopen:
    push %rdi
    push %rsi
    sub $8, %rsp
    call cot_enter_dlopen
    add $8, %rsp
    pop %rsi
    pop %rdi
    and $~8, %esi /* RTLD_DEEPBIND: the library would find its own functions before the hooks */
    jmp *%rax
    .size dlopen, .-dlopen

    .section .note.GNU-stack, "", @progbits
