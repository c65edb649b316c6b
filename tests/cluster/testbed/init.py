"""Process 1 of a testbed: makes its network and its private folders, runs the command and reaps what is orphaned."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from . import places

NODE_ADDRESS = "10.244.0.1"
API_ADDRESS = "10.96.0.1"

KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""The kubelet sets these for the whole machine. It is shown them as set, and the machine's own stay as they are."""


BRIDGE = "0a:58:0a:f4:00:01"
"""Without one of its own a bridge has the lowest of its pods', and with each pod that comes or goes may have another:
the others then cannot reach the API server until they have asked again, half a minute later.
"""


def network() -> None:
    """One bridge that is the node and the API server's ClusterIP at once: pods need neither kube-proxy nor iptables."""
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "link", "add", "cni0", "address", BRIDGE, "type", "bridge")
    _call("ip", "address", "add", f"{NODE_ADDRESS}/24", "dev", "cni0")
    _call("ip", "address", "add", f"{API_ADDRESS}/32", "dev", "cni0")
    _call("ip", "link", "set", "cni0", "up")


def folders(name: str, *, kubelet: bool) -> None:
    """Private ones where components write at fixed paths; what the machine has there is hidden, not touched."""
    _call("mount", "--make-rshared", "/")
    for folder in ("/run", "/dev/shm"):
        _call("mount", "-t", "tmpfs", "-o", "mode=1777", name, folder)
    places.STATE.mkdir()
    if not kubelet:
        return
    _call("mount", "-t", "tmpfs", name, "/var/log")
    upper, work = places.STATE / "upper", places.STATE / "work"
    upper.mkdir()
    work.mkdir()
    # An overlay, so that /var/lib/kubelet and /var/lib/cni need not be made in the machine's own /var/lib.
    _call(
        "mount", "-t", "overlay", "-o", f"lowerdir=/var/lib,upperdir={upper},workdir={work}", name, "/var/lib"
    )
    for folder in ("/var/lib/kubelet", "/var/lib/cni"):
        Path(folder).mkdir(exist_ok=True)
        _call("mount", "-t", "tmpfs", name, folder)
    for setting, value in KERNEL_SETTINGS.items():
        shown = places.STATE / "kernel" / setting
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(value + "\n")
        _call("mount", "--bind", str(shown), f"/proc/sys/{setting}")


def run(command: list[str]) -> int:
    """Waits for the command, and for every orphan (containerd's shims) that the kernel hands to process 1."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main = subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    while True:
        pid, status = os.wait()
        if pid == main.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _call(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    network()
    folders(places.inside() or "testbed", kubelet=places.KUBELET not in places.reasons())
    sys.exit(run(sys.argv[1:]))
