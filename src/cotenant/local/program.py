"""Finds the program of a command, and whether the shim can be loaded into it."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Mapping
from typing import NamedTuple

from cotenant.core.errors import CommandNotFound, NotExecutable

_ELF_64 = b"\x7fELF\x02"
_PT_INTERP = 3
_SEGMENT = struct.Struct("<IIQQQQ16x")
_DEEPEST_SCRIPT = 4
"""Scripts that name scripts: the kernel follows as many."""


class Program(NamedTuple):
    path: str
    obstacle: str | None
    """Why the shim cannot be loaded, for a message; None if it can."""
    preload: bool
    """Whether LD_PRELOAD may be set at all: musl's loader aborts at a library made for glibc."""


def find(name: str, environ: Mapping[str, str]) -> Program:
    """Finds the program as a shell does."""
    path = _locate(name, environ)
    obstacle, preload = _obstacle(path, environ, _DEEPEST_SCRIPT)
    return Program(path, obstacle, preload)


def _locate(name: str, environ: Mapping[str, str]) -> str:
    if not name:
        raise CommandNotFound(
            "the command is empty: write it after --, as in `cotenant run -- python train.py`"
        )
    folders = [""] if "/" in name else environ.get("PATH", os.defpath).split(":")
    refused = None
    for folder in folders:
        path = os.path.join(folder or ".", name) if "/" not in name else name
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            refused = refused or (path if error.errno == errno.EACCES else None)
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK):
            return path
        refused = refused or path
    if refused is not None:
        raise NotExecutable(f"{refused} is not an executable file")
    raise CommandNotFound(f"{name} was not found{'' if '/' in name else ' in PATH'}")


def _obstacle(path: str, environ: Mapping[str, str], depth: int) -> tuple[str | None, bool]:
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
            if head.startswith(b"#!"):
                return _of_script(head, environ, depth)
            if not head.startswith(b"\x7fELF"):
                return None, True  # run by a shell, or refused by the kernel
            if not head.startswith(_ELF_64):
                return f"{path} is a 32-bit program", False
            interpreter = _interpreter(head, file.fileno())
            if os.fstat(file.fileno()).st_mode & (stat.S_ISUID | stat.S_ISGID):
                return f"{path} runs with another user's rights, so the system drops what is preloaded", True
    except (OSError, struct.error):
        return None, True
    if interpreter is None:
        return f"{path} is linked statically", True
    if "ld-musl" in interpreter:
        return f"{path} is made for musl, not glibc", False
    return None, True


def _of_script(head: bytes, environ: Mapping[str, str], depth: int) -> tuple[str | None, bool]:
    words = head[2:].split(b"\n", 1)[0].decode(errors="replace").split()
    if not words or depth == 0:
        return None, True
    interpreter = words[0]
    if os.path.basename(interpreter) == "env":
        rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if rest:
            try:
                interpreter = _locate(rest[0], environ)
            except (CommandNotFound, NotExecutable):
                return None, True
    return _obstacle(interpreter, environ, depth - 1)


def _interpreter(head: bytes, fd: int) -> str | None:
    """Returns the dynamic loader that the program names; None for a static program (also static-pie)."""
    (offset,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    if size != _SEGMENT.size or offset >= 1 << 32:
        raise struct.error("not an executable")
    table = os.pread(fd, size * count, offset)
    for at in range(0, size * count, size):
        kind, _flags, start, _address, _physical, length = _SEGMENT.unpack_from(table, at)
        if kind == _PT_INTERP:
            return os.pread(fd, min(length, 4096), min(start, 1 << 62)).rstrip(b"\0").decode(errors="replace")
    return None
