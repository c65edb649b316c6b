"""The gate: a command starts only after its process is recorded."""

import os
import signal

import pytest

from cotenant.core.errors import CommandNotFound
from cotenant.local import start, supervise


@pytest.fixture
def gated():
    def make(path, *words):
        keep = os.open("/dev/null", os.O_RDONLY)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            return start.start_gated(path, [path, *words], os.environ, mask, keep)
        finally:
            os.close(keep)

    return make


def test_a_child_that_is_killed_at_the_gate_is_reported_by_its_status(gated):
    """Its pid is in the ledger already, so `cotenant stop` may find it there."""
    child = gated("/bin/sh", "-c", "exit 3")
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    child.open()
    assert supervise.supervise(child.pid) == 137


def test_what_cannot_be_executed_is_an_error_of_who_opens_the_gate(gated):
    child = gated("/nonexistent/tool")
    with pytest.raises(CommandNotFound):
        child.open()
