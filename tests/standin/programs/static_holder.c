/* A static program on the simulated card: it is linked with nothing that a preload could reach, and asks the
 * driver for memory as the stand-in's libcuda does. Takes pieces of 64 MiB until it has so many as its first
 * argument says, prints what it has after each, then stays until it is killed. The second argument:
 * milliseconds between two pieces.
 *
 * It is built with musl, whose mutexes are others than glibc's, in which the driver's file is kept. So it
 * brings the two functions that the driver's file needs, as glibc has them for a lock whose holder does not
 * die. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PIECE (64 * STANDIN_MIB)

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    unsigned *word = (unsigned *)mutex, none = 0, own = (unsigned)syscall(SYS_gettid);
    while (!__atomic_compare_exchange_n(word, &none, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        usleep(100);
        none = 0;
    }
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    unsigned *word = (unsigned *)mutex;
    if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) & FUTEX_WAITERS)
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    return 0;
}

int main(int argc, char **argv) {
    struct standin_state *state = standin_map();
    int entry = state && argc > 2 ? standin_attach(state) : -1, card = 0;
    if (entry < 0) {
        fprintf(stderr, "no driver here\n");
        return 2;
    }
    uint64_t shown = standin_shown(state);
    while (!(shown >> card & 1))
        card++;
    for (long i = 1; i <= atol(argv[1]) && standin_charge(state, card, entry, PIECE, 0); i++) {
        printf("{\"got\": %ld}\n", i * 64);
        fflush(stdout);
        usleep((useconds_t)atol(argv[2]) * 1000);
    }
    printf("{\"stays\": true}\n");
    fflush(stdout);
    for (;;)
        pause();
}
