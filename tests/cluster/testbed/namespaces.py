"""Starts a command, and whatever it starts, in network, mount and PID namespaces of their own.

Seen from outside there are three processes before the command: this one, `unshare`, and init (pid 1 within).
Each is killed by the kernel when the one before it dies, and the kernel kills all others with init. So
nothing outlives a testbed, however it ends, and nothing has to clean up for that: mounts, addresses and files
of the testbed are in its namespaces. Only cgroup folders are not; they are removed here, or by the next run.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from . import cgroups, places

PR_SET_PDEATHSIG = 1


def unshare() -> list[str]:
    """Without root, a user namespace stands in where the machine allows it: enough for all but the kubelet."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    own = ["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private"]
    return ["unshare", *user, *own]


def refusal() -> str | None:
    """Why this machine gives no namespaces, or None."""
    try:
        tried = subprocess.run([*unshare(), "true"], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return "unshare (util-linux) is missing"
    if tried.returncode:
        needs = "" if os.geteuid() == 0 else "needs root, or user namespaces for everyone: "
        return needs + (tried.stderr.strip().splitlines() or ["unshare failed"])[-1]
    return None


def run(command: Sequence[str], reasons: Mapping[str, str], *, cwd: Path | None = None) -> int:
    """The command's exit code, or 128 + the signal that ended it."""
    with _name(cgroup=places.KUBELET not in reasons) as name:
        told = {places.INSIDE: name, places.REASONS: json.dumps(dict(reasons)), "PYTHONPATH": _python_path()}
        environment = {**os.environ, **told}
        process = subprocess.Popen(
            [*unshare(), sys.executable, "-m", "cluster.testbed.init", *command],
            cwd=cwd,
            env=environment,
            preexec_fn=_die_with_parent,
        )
        with _signals_passed_to(process):
            code = process.wait()
    return code if code >= 0 else 128 - code


def _python_path() -> str:
    """`cluster.testbed` is found from tests/, wherever the command changes to."""
    tests = str(places.GO_MODULES.parent.parent)
    return os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _signals_passed_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the command by the terminal, and it tears down; any other end is an end at once."""

    def end(number: int, _frame: object) -> None:
        process.kill()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _name(*, cgroup: bool) -> Iterator[str]:
    """A name held by a lock for as long as this process lives, so that a later run knows what is left over."""
    folder = places.cache() / "running"
    folder.mkdir(parents=True, exist_ok=True)
    name = cgroups.PREFIX + secrets.token_hex(4)
    with (folder / name).open("w") as lock:
        with (places.cache() / ".running").open("w") as all_names:
            fcntl.flock(all_names, fcntl.LOCK_EX)
            fcntl.flock(lock, fcntl.LOCK_EX)
            _sweep(folder)
        if cgroup:
            cgroups.make(name)
        try:
            yield name
        finally:
            if cgroup:
                cgroups.remove(name)
            (folder / name).unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    for held in folder.iterdir():
        with contextlib.suppress(OSError), held.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            cgroups.remove(held.name, patience=0.2)
            held.unlink()
