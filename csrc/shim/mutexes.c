/* Implements the mutexes of pthread.h for this library alone, on futexes.
 *
 * Before glibc 2.34 they are in libpthread.so.0, and a library that needs it keeps every program of an image
 * that lacks it from starting. They are hidden, so nobody else gets them. A mutex of zeros is open, as a page
 * that was wiped in a fork's child needs it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

enum { OPEN = 0, HELD = 1, AWAITED = 2 };

static int *word(pthread_mutex_t *mutex) {
    return (int *)mutex;
}

HIDDEN int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    int open = OPEN;
    return __atomic_compare_exchange_n(word(mutex), &open, HELD, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
               ? 0
               : EBUSY;
}

HIDDEN int pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (__builtin_expect(pthread_mutex_trylock(mutex) == 0, 1))
        return 0;
    int before = errno; /* a driver's caller may look at it */
    while (__atomic_exchange_n(word(mutex), AWAITED, __ATOMIC_ACQUIRE) != OPEN)
        syscall(SYS_futex, word(mutex), FUTEX_WAIT_PRIVATE, AWAITED, NULL, NULL, 0);
    errno = before;
    return 0;
}

HIDDEN int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (__builtin_expect(__atomic_exchange_n(word(mutex), OPEN, __ATOMIC_RELEASE) == AWAITED, 0))
        syscall(SYS_futex, word(mutex), FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return 0;
}

HIDDEN int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
    (void)attributes;
    __atomic_store_n(word(mutex), OPEN, __ATOMIC_RELEASE);
    return 0;
}

/* What pthread_atfork is made of, since glibc 2.3.2, in libc. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);
extern void *__dso_handle __attribute__((visibility("hidden")));

HIDDEN int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    return __register_atfork(prepare, parent, child, __dso_handle);
}
