"""The first call of a hook, in a thread and in a library's constructor at once: the dynamic loader's lock is held there."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shim.compiling import compiled, library
from shim.slotted import Bench

CONSTRUCTOR = r"""
#include <stddef.h>
int cuMemGetInfo_v2(size_t *, size_t *);
__attribute__((constructor)) static void start(void) { size_t available, total; cuMemGetInfo_v2(&available, &total); }
"""

PROGRAM = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
int cuMemAlloc_v2(unsigned long long *, size_t) __attribute__((weak));
static pthread_barrier_t both;
static void *call(void *unused) {
    unsigned long long address;
    pthread_barrier_wait(&both);
    return (void *)(long)cuMemAlloc_v2(&address, 1);
}
int main(int count, char **arguments) {
    pthread_t thread; void *answer;
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == NULL) return 1;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, call, NULL);
    pthread_barrier_wait(&both);
    if (dlopen(arguments[1], RTLD_NOW) == NULL) return 2;
    pthread_join(thread, &answer);
    return (long)answer == 3 ? 0 : 3;
}
"""


def test_no_lock_is_held_while_the_loader_is_asked(bench: Bench, tmp_path: Path):
    started = library(tmp_path, CONSTRUCTOR, "-Wl,-z,lazy", name="started.so")
    program = compiled(tmp_path, PROGRAM, "-pthread")
    for _ in range(50):
        assert subprocess.run([program, started], env=bench.env(), check=False, timeout=20).returncode == 0
