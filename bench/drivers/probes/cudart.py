"""Calls a real libcudart as a program would, and prints the result codes as JSON.

cudart.py LIBRARY
"""

from __future__ import annotations

import ctypes
import sys

from report import report

library = ctypes.CDLL(sys.argv[1])
number, address = ctypes.c_int(-1), ctypes.c_void_p()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
space = ctypes.create_string_buffer(1 << 16)
size = ctypes.c_size_t
calls = (
    ("cudaRuntimeGetVersion", (ctypes.byref(number),)),
    ("cudaDriverGetVersion", (ctypes.byref(number),)),
    ("cudaGetDeviceCount", (ctypes.byref(number),)),
    ("cudaGetLastError", ()),
    ("cudaSetDevice", (0,)),
    ("cudaSetDevice", (99,)),
    ("cudaFree", (None,)),
    ("cudaMemGetInfo", (ctypes.byref(free), ctypes.byref(total))),
    ("cudaMalloc", (ctypes.byref(address), size(1 << 20))),
    ("cudaMalloc", (ctypes.byref(address), size(2**64 - 1))),
    ("cudaMallocManaged", (ctypes.byref(address), size(1 << 20), 1)),
    ("cudaMallocAsync", (ctypes.byref(address), size(1 << 20), None)),
    ("cudaMallocHost", (ctypes.byref(address), size(1 << 20))),
    ("cudaStreamCreate", (ctypes.byref(address),)),
    ("cudaStreamSynchronize", (None,)),
    ("cudaDeviceSynchronize", ()),
    ("cudaGetDriverEntryPoint", (b"cuCtxSynchronize", ctypes.byref(address), ctypes.c_ulonglong(0), space)),
    ("cudaGetDeviceProperties", (space, 0)),
    ("cudaDeviceReset", ()),
    ("cudaPeekAtLastError", ()),
)
answers = {}
for at, (name, arguments) in enumerate(calls):
    number.value = -1
    if not hasattr(library, name):
        answers[f"{at} {name}"] = "missing"
        continue
    code = getattr(library, name)(*arguments)
    answers[f"{at} {name}"] = f"{code}, {number.value}"
headline = answers["2 cudaGetDeviceCount"].split(",")[0]
report(headline, answers)
