"""A folder of the testbed's own in every cgroup hierarchy, under which its kubelet puts all pods."""

import contextlib
import os
import time
from pathlib import Path

PREFIX = "cotenant-testbed-"


def hierarchies() -> list[Path]:
    """Where cgroup v1 hierarchies and cgroup v2 are mounted."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = [line.split(" - ") for line in mounts]
    return [Path(left.split()[4]) for left, right in fields if right.split()[0] in ("cgroup", "cgroup2")]


def make(name: str) -> None:
    for hierarchy in hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        if (hierarchy / "cgroup.controllers").exists():
            _pass_controllers_on(hierarchy)
        # A v1 cpuset without CPUs and memory nodes takes no process.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (folder / file).exists() and not (hierarchy / "cgroup.controllers").exists():
                (folder / file).write_text((hierarchy / file).read_text())


def _pass_controllers_on(hierarchy: Path) -> None:
    for controller in (hierarchy / "cgroup.controllers").read_text().split():
        try:
            (hierarchy / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            # Said by the kubelet if it is one that it needs.
            continue


def remove(name: str, patience: float = 5.0) -> None:
    """Bottom up, since the kernel removes only empty groups; those of killed processes empty in a moment."""
    until = time.monotonic() + patience
    while _remove_once(name) and time.monotonic() < until:
        time.sleep(0.02)


def _remove_once(name: str) -> bool:
    """Whether something is still there."""
    roots = [hierarchy / name for hierarchy in hierarchies()]
    for root in roots:
        for folder, _, _ in os.walk(root, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    return any(root.exists() for root in roots)


def left() -> set[str]:
    """Names of testbeds that have a cgroup, running or not."""
    return {folder.name for hierarchy in hierarchies() for folder in hierarchy.glob(f"{PREFIX}*")}
