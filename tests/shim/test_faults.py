"""A slot that cannot be used refuses memory, with one line that says why; it never lets a program past its limit."""

from __future__ import annotations

import shutil

import pytest
from shim.slotted import Bench

from cotenant.hardware import slots


def of_another_version(name: str):
    def spoil(bench: Bench) -> None:
        with (bench.slot / name).open("r+b") as file:
            file.seek(8)
            file.write((99).to_bytes(4, "little"))

    return spoil


def of_another_owner(bench: Bench) -> None:
    with (bench.slot / "usage").open("r+b") as file:
        file.seek(16)
        file.write(b"somebody else")


def cut_short(bench: Bench) -> None:
    with (bench.slot / "limits").open("r+b") as file:
        file.truncate(100)


FAULTS = {
    "limits of another version": (of_another_version("limits"), "ABI version"),
    "usage of another version": (of_another_version("usage"), "ABI version"),
    "usage of another grant": (of_another_owner, "another grant"),
    "limits cut short": (cut_short, "size"),
    "no limits": (lambda bench: (bench.slot / "limits").unlink(), "grant has ended"),
    "no usage": (lambda bench: (bench.slot / "usage").unlink(), "grant has ended"),
    "no slot folder": (lambda bench: shutil.rmtree(bench.slot), "grant has ended"),
    "a closed slot": (lambda bench: slots.close(bench.slot), "grant has ended"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_memory_is_refused(bench: Bench, fault: str):
    spoil, reason = FAULTS[fault]
    spoil(bench)
    done = bench.run("""
        assert context() == NOT_PERMITTED
        handle = c_void_p()
        assert cuda.cuCtxCreate_v2(byref(handle), 0, 0) == NOT_PERMITTED
        assert card() == 0
    """)
    assert done.stderr.count("cotenant:") == 1
    assert reason in done.stderr


def test_more_processes_than_entries_are_refused(bench: Bench):
    """All entries but one are held by one process, through locks of its own."""
    import fcntl
    import os
    import struct

    fd = os.open(bench.slot / "usage", os.O_RDWR)
    fcntl.fcntl(
        fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 1 << 40, slots.PROCESSES - 1, 0)
    )
    bench.run("ok(context())")
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 1 << 40, slots.PROCESSES, 0))
    done = bench.run("assert context() == NOT_PERMITTED")
    assert "no entry left" in done.stderr
    os.close(fd)
