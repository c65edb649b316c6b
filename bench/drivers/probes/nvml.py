"""Calls NVML as its readers do, and prints the result codes as JSON."""

from __future__ import annotations

import ctypes

from report import report

answers: dict[str, str] = {}
try:
    library = ctypes.CDLL("libnvidia-ml.so.1")
except OSError as error:
    answers["load"] = str(error)
else:
    number, text, handle = ctypes.c_uint(), ctypes.create_string_buffer(1 << 16), ctypes.c_void_p()
    count = ctypes.c_uint(8)
    calls = (
        ("nvmlDeviceGetCount_v2", (ctypes.byref(number),)),
        ("nvmlSystemGetDriverVersion", (text, 80)),
        ("nvmlInit_v2", ()),
        ("nvmlInit", ()),
        ("nvmlInitWithFlags", (0,)),
        ("nvmlSystemGetDriverVersion", (text, 80)),
        ("nvmlSystemGetCudaDriverVersion", (ctypes.byref(number),)),
        ("nvmlDeviceGetCount_v2", (ctypes.byref(number),)),
        ("nvmlDeviceGetHandleByIndex_v2", (0, ctypes.byref(handle))),
        ("nvmlDeviceGetHandleByIndex_v2", (99, ctypes.byref(handle))),
        ("nvmlDeviceGetHandleByUUID", (b"GPU-no-such", ctypes.byref(handle))),
        ("nvmlDeviceGetMemoryInfo", (handle, text)),
        ("nvmlDeviceGetMemoryInfo_v2", (handle, text)),
        ("nvmlDeviceGetUUID", (handle, text, 96)),
        ("nvmlDeviceGetComputeRunningProcesses_v3", (handle, ctypes.byref(count), text)),
        ("nvmlShutdown", ()),
        ("nvmlShutdown", ()),
    )
    for at, (name, arguments) in enumerate(calls):
        answers[f"{at} {name}"] = (
            str(getattr(library, name)(*arguments)) if hasattr(library, name) else "missing"
        )
headline = answers.get("2 nvmlInit_v2", "no library")
report(headline, answers)
