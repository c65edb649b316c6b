"""What of the testbed this machine can run. What it cannot is named, with the reason, and the rest still runs."""

import os
import shutil
import sys
from pathlib import Path

from . import binaries, cgroups, namespaces
from .compiling import CannotBuild
from .places import CONTROL_PLANE, KUBELET


def prepare() -> dict[str, str]:
    """Finds or builds the binaries, and gives for each part that cannot run the reason, in one line."""
    reason = _no_namespaces() or _missing(binaries.kubernetes)
    if reason:
        return {CONTROL_PLANE: reason, KUBELET: reason}
    reason = _no_containers() or _missing(binaries.runtime) or _missing(binaries.pause)
    return {KUBELET: reason} if reason else {}


def _no_namespaces() -> str | None:
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    if not shutil.which("ip"):
        return "ip (iproute2) is missing"
    return namespaces.refusal()


def _no_containers() -> str | None:
    if os.geteuid() != 0:
        return "a kubelet needs root"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "the kernel has no overlay file system"
    found = cgroups.hierarchies()
    if not found:
        return "no cgroup hierarchy is mounted"
    refused = [str(folder) for folder in found if not os.access(folder, os.W_OK)]
    return f"no right to make cgroups in {', '.join(refused)}" if refused else None


def _missing(build: binaries.Builder) -> str | None:
    try:
        build()
    except CannotBuild as why:
        return str(why)
    return None
