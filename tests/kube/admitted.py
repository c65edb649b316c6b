"""A pod as admission leaves it, and what to look at in it."""

from __future__ import annotations

import copy
import json
from typing import Any

from kube.builders import (
    applied,
)

from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.mutation import Mutation, mutate
from cotenant.kube.admission.settings import AdmissionSettings

ALL = Dialects(aliyun=Aliyun(unit="MiB"), nvidia=Nvidia(enabled=True))
FORGED = {
    "cotenant.dev/grant": '{"version":1}',
    "cotenant.dev/retry": "1",
    "devices.cotenant.dev/main": "all",
    "compute.cotenant.dev/main": "100",
    "card-memory.cotenant.dev/main": "1",
    "mps-memory.cotenant.dev/main": "0=999999M",
    "ALIYUN_COM_GPU_MEM_IDX": "0",
    "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1",
    "scheduler.framework.gpushare.allocation": "{}",
    "volcano.sh/gpu-index": "7",
    "volcano.sh/predicate-time": "1",
    "volcano.sh/gpu-assigned": "true",
}


def admitted(
    body: dict[str, Any], admission: AdmissionSettings | None = None, dialects: Dialects = ALL
) -> Mutation:
    """The mutation, after checking what holds for every one of them."""
    before = copy.deepcopy(body)
    mutation = mutate(body, admission or AdmissionSettings(), dialects)
    assert body == before, "the pod that came stays as it is"
    assert applied(body, json.loads(json.dumps(mutation.patch))) == mutation.pod
    return mutation


def containers(mutation: Mutation) -> dict[str, dict[str, Any]]:
    spec = mutation.pod["spec"]
    return {each["name"]: each for each in (*spec.get("initContainers", ()), *spec["containers"])}


def amounts(mutation: Mutation, name: str) -> dict[str, Any]:
    resources = containers(mutation)[name]["resources"]
    ours = {key: value for key, value in resources["limits"].items() if key.startswith("cotenant.dev/")}
    assert ours == {key: value for key, value in resources["requests"].items() if key in ours}
    return ours


def environment(mutation: Mutation, name: str) -> dict[str, Any]:
    """By name: a value, or the annotation that it is read from."""
    found = {}
    for each in containers(mutation)[name].get("env", ()):
        assert not isinstance(found.get(each["name"]), dict), "each of ours stands there once"
        path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        found[each["name"]] = {"from": path[len("metadata.annotations['") : -2]} if path else each["value"]
    return found
