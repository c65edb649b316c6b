"""Calls every function that the shim replaces, with several kinds of arguments, before and after cuInit.

    calls.py NAME,NAME,...

Each call is made in a process of its own, so that a crash or a hang of one call is one answer among others.
The answers are result codes, `signal 11`, `hang`, or `missing` where the driver does not have the function.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys

from report import report

SCRATCH = 1 << 20
SECONDS = 20
ARGUMENTS = 8

library = ctypes.CDLL("libcuda.so.1")
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_size_t
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
there = SCRATCH // 2 + libc.mmap(
    ctypes.c_size_t(0x7000_1000_0000),
    ctypes.c_size_t(SCRATCH),
    mmap.PROT_READ | mmap.PROT_WRITE,
    PRIVATE,
    -1,
    ctypes.c_size_t(0),
)
"""Where the kernel puts it if that is free: the same in each run, since some calls take it for a number."""

KINDS = {
    "zeros": [0] * ARGUMENTS,
    "buffers": [there] * ARGUMENTS,
    # a place for the answer, then the largest size, or the ordinal -1
    "largest": [there] + [2**64 - 1] * (ARGUMENTS - 1),
    # a place for the answer, then a small size, or an ordinal that no machine has
    "small": [there] + [4096] * (ARGUMENTS - 1),
}


def call(name: str, arguments: list[int]) -> int:
    function = getattr(library, name)
    function.restype = ctypes.c_int
    return int(function(*map(ctypes.c_uint64, arguments)))


def enter() -> int:
    """Initialises CUDA, and makes a context current where there is a card."""
    code = call("cuInit", [0])
    if code == 0:
        context = ctypes.c_void_p()
        library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        library.cuCtxSetCurrent(context)
    return code


def answer(name: str, kind: str, initialised: bool) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 2)
        signal.alarm(SECONDS)
        if initialised:
            enter()
        os.write(writing, str(call(name, KINDS[kind])).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if said:
        return said
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return "hang" if number == signal.SIGALRM else f"signal {number}"


def main() -> None:
    answers = {}
    for name in sys.argv[1].split(","):
        if not hasattr(library, name):
            answers[name] = "missing"
            continue
        for initialised in (False, True):
            for kind in KINDS:
                moment = "after" if initialised else "before"
                answers[f"{name} {moment} cuInit, {kind}"] = answer(name, kind, initialised)
    count, version = ctypes.c_int(-1), ctypes.c_int(-1)
    answers["cuInit"] = str(enter())
    answers["cuInit again"] = str(call("cuInit", [0]))
    answers["cuDeviceGetCount"] = f"{library.cuDeviceGetCount(ctypes.byref(count))}, {count.value}"
    answers["cuDriverGetVersion"] = f"{library.cuDriverGetVersion(ctypes.byref(version))}, {version.value}"
    report(answers["cuInit"], answers)


main()
