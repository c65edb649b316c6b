"""Connects containers that ask for a share of compute with the MPS of the node that they will run on.

Which node that is, and whether it has MPS, is not known at admission. The variable names a folder that is
there only where it has; elsewhere CUDA works without MPS.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from cotenant.dialects import names
from cotenant.dialects.dialect import Env, SlotDemand
from cotenant.hardware.enforcers.mps import PIPE_IN_CONTAINER
from cotenant.hardware.mps.place import USUAL_PIPE_FOLDER
from cotenant.kube.pods.pod_json import as_list, as_object

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 -- where glibc looks for shared memory
_OURS = Env(names.MPS_PIPE_FOLDER, value=str(PIPE_IN_CONTAINER))


def compute_environment(body: Mapping[str, Any], slot: SlotDemand) -> tuple[Env, ...]:
    """Returns the variable by which a container finds MPS. A container whose author says where MPS is keeps
    that. One with shared memory of its own cannot be a client.
    """
    if slot.demand.compute is None or _has_own_daemon(body) or _has_own_memory(body):
        return ()
    return (_OURS,)


def compute_warnings(body: Mapping[str, Any], slot: SlotDemand) -> list[str]:
    """Words what keeps a container from being held to its share by the node's MPS."""
    if slot.demand.compute is None:
        return []
    where = f"container {body['name']!r}: {names.GPU_COMPUTE}"
    if _has_own_daemon(body):
        return [f"{where} is enforced only if the MPS daemon runs that the container itself names"]
    if _has_own_memory(body):
        why = f"with a volume at {_SHARED_MEMORY} it cannot share memory with the node's MPS"
        return [f"{where} is counted, and not enforced: {why}"]
    return []


def _has_own_daemon(body: Mapping[str, Any]) -> bool:
    where = f"container {body['name']!r}: env"
    for each in as_list(body.get("env"), where):
        variable = as_object(each, where)
        if variable.get("name") == names.MPS_PIPE_FOLDER:
            return bool(variable.get("value") != _OURS.value)
    return _mounts(body, str(USUAL_PIPE_FOLDER))


def _has_own_memory(body: Mapping[str, Any]) -> bool:
    return _mounts(body, _SHARED_MEMORY)


def _mounts(body: Mapping[str, Any], wanted: str) -> bool:
    where = f"container {body['name']!r}: volumeMounts"
    paths = (as_object(each, where).get("mountPath") for each in as_list(body.get("volumeMounts"), where))
    return any(
        isinstance(path, str) and posixpath.normpath("/" + path.lstrip("/")) == wanted for path in paths
    )
