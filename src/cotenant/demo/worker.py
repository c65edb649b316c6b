"""Uses a GPU as any CUDA program does, controlled by its stdin.

    worker.py 3Gi              allocate this much GPU memory and compute

A line of input is a command, the answer is a line of JSON: `take 4Gi` allocates more memory, `rest` stops
computing, `look` only answers, `end` exits. It needs only the driver's library and the standard library.
"""

import ctypes
import json
import os
import select
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_ulonglong, c_void_p
from typing import Any

PERIOD = 0.02
KERNEL = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry step() { ret; }\n"
PAGE = 4096
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


class VisibleGpu:
    """The first GPU that this program sees."""

    def __init__(self, amount: int) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._need("cuInit", 0)
        context, module, self._kernel = c_void_p(), c_void_p(), c_void_p()
        self._need("cuDevicePrimaryCtxRetain", byref(context), 0)
        self._need("cuCtxSetCurrent", context)
        self._need("cuModuleLoadData", byref(module), c_char_p(KERNEL))
        self._need("cuModuleGetFunction", byref(self._kernel), module, c_char_p(b"step"))
        self._memory = c_ulonglong()
        self._need("cuMemAlloc_v2", byref(self._memory), c_size_t(amount))

    def take(self, amount: int) -> str:
        """Allocates more memory and returns CUDA's result."""
        more = c_ulonglong()
        return self._name(self._cuda.cuMemAlloc_v2(byref(more), c_size_t(amount)))

    def step(self) -> None:
        """Launches a kernel, waits, and checks that what was written to GPU memory can be read from it."""
        self._need("cuLaunchKernel", self._kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        self._need("cuCtxSynchronize")
        sent, back = ctypes.create_string_buffer(os.urandom(PAGE), PAGE), ctypes.create_string_buffer(PAGE)
        self._need("cuMemcpyHtoD_v2", self._memory, sent, c_size_t(PAGE))
        self._need("cuMemcpyDtoH_v2", back, self._memory, c_size_t(PAGE))
        if back.raw != sent.raw:
            raise SystemExit("GPU memory does not hold what was written to it")

    def sees(self) -> int:
        """Returns the GPU's total memory as CUDA reports it to this process."""
        free, total = c_size_t(), c_size_t()
        self._need("cuMemGetInfo_v2", byref(free), byref(total))
        return total.value

    def _need(self, function: str, *arguments: Any) -> None:
        result = getattr(self._cuda, function)(*arguments)
        if result:
            raise SystemExit(f"{function}: {self._name(result)}")

    def _name(self, result: int) -> str:
        name = c_char_p()
        self._cuda.cuGetErrorName(c_int(result), byref(name))
        return (name.value or b"unknown error").decode()


def size(text: str) -> int:
    return int(text[:-2]) * UNITS[text[-2:]]


def main() -> None:
    card = VisibleGpu(size(sys.argv[1]))
    working, steps, said = True, 0, None
    while True:
        print(json.dumps({"pid": os.getpid(), "steps": steps, "sees": card.sees(), "said": said}), flush=True)
        while not select.select([sys.stdin], [], [], PERIOD)[0]:
            if working:
                card.step()
                steps += 1
        word, _, rest = sys.stdin.readline().strip().partition(" ")
        said = card.take(size(rest)) if word == "take" else None
        working = working and word != "rest"
        if word in ("end", ""):  # an empty line is the end of stdin: the demo has exited
            return


if __name__ == "__main__":
    main()
