"""Allows one agent per node: a second one, as during an upgrade, waits until the first has exited."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.kube.logs import get_logger

log = get_logger(__name__)
_LOOK = 0.2


@asynccontextmanager
async def alone(root: Path) -> AsyncIterator[None]:
    """Holds a kernel lock for the block. The kernel releases it when the process ends, also by kill -9."""
    descriptor = _opened(root / "agent.lock")
    try:
        told = False
        while not _locked(descriptor):
            if not told:
                log.warning("another agent runs on this node: waiting until it ends")
                told = True
            await asyncio.sleep(_LOOK)
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CotenantError(f"agent.slots: {path} cannot be written: {error.strerror}") from None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
