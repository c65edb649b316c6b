"""Prints what a probe found as JSON, with the environment as C code in this process sees it."""

from __future__ import annotations

import ctypes
import json


def report(headline: str, answers: dict[str, str]) -> None:
    variables = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    environment, at = {}, 0
    while variables[at] is not None:
        name, _, value = variables[at].decode(errors="replace").partition("=")
        environment[name] = value
        at += 1
    print(json.dumps({"headline": headline, "answers": answers, "environment": environment}))
