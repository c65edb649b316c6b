"""Versions, and the folders where binaries and the state of a running testbed lie."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

KUBERNETES = ("1.37.1", "1.36.4", "1.35.4")
CONTAINERD = "2.3.7"
RUNC = "1.5.2"
HELM = "3.21.4"
KEDA = "2.21.0"
PROMETHEUS_ADAPTER = "0.12.0"
GO_WHEEL = "1.27.3"

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "bridge", "host-local", "loopback")

CONTROL_PLANE = "control plane"
KUBELET = "kubelet"
"""The two parts of a testbed, as reports name them."""

GO_MODULES = Path(__file__).parent.parent / "go"

STATE = Path("/run/testbed")
"""Everything that a running testbed writes. It is on a tmpfs of the testbed's own, so it ends with it."""

INSIDE = "COTENANT_TESTBED_INSIDE"
"""Environment variable with the name of the testbed that a process runs in."""

REASONS = "COTENANT_TESTBED_REASONS"
"""Environment variable that tells what was found outside: which part cannot run, and why, as JSON."""


def reasons() -> dict[str, str]:
    told: dict[str, str] = json.loads(os.environ.get(REASONS, "{}"))
    return told


def tell(found: Mapping[str, str]) -> None:
    os.environ[REASONS] = json.dumps(dict(found))


def inside() -> str | None:
    return os.environ.get(INSIDE)


def version() -> str:
    chosen = os.environ.get("COTENANT_KUBERNETES", KUBERNETES[0]).removeprefix("v")
    if chosen not in KUBERNETES:
        raise SystemExit(f"COTENANT_KUBERNETES={chosen}: the testbed knows {', '.join(KUBERNETES)}")
    return chosen


def cache() -> Path:
    """Outside the tree, shared by all clones, and only ever added to; delete it to build anew."""
    named = os.environ.get("COTENANT_TESTBED")
    if named:
        return Path(named).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "cotenant" / "testbed"


def kubernetes_folder() -> Path:
    return cache() / f"v{version()}"


def runtime_folder() -> Path:
    return cache() / f"containerd-{CONTAINERD}"


def helm() -> Path:
    return cache() / f"helm-{HELM}" / "helm"


def keda() -> Path:
    """Folder with `operator`, `adapter` and KEDA's CRDs."""
    return cache() / f"keda-{KEDA}"


def prometheus_adapter() -> Path:
    return cache() / f"prometheus-adapter-{PROMETHEUS_ADAPTER}" / "prometheus-adapter"


def binary(name: str) -> Path:
    folder = kubernetes_folder() if name in COMPONENTS else runtime_folder()
    return folder / name
