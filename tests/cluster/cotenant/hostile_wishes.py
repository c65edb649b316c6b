"""Every wish in every kind of container: pods by which an author may try to get more than a quota has counted."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from cluster.testbed.api import Object

from .accounts import GRANT, MEMORY, WHOLE, amount
from .manifests import COMPUTE, container, pod

COUNTED = (MEMORY, WHOLE, COMPUTE)
EXHAUSTIVE = os.environ.get("COTENANT_WISHES") == "all"
"""Whether every demand comes with every wish both before admission and after it, or each with one of these in turn."""
GATED = {"schedulingGates": [{"name": "example.com/wait"}]}

DEMANDS: dict[str, tuple[Object, Object]] = {
    "memory": ({"memory": "10Gi"}, {"memory": "1Gi"}),
    "compute": ({"memory": "10Gi", "compute": "100"}, {"memory": "1Gi", "compute": "9"}),
    "whole": ({"whole": "2"}, {"whole": "1"}),
    "aliyun": ({"aliyun.com/gpu-mem": "10"}, {"memory": "1Gi"}),
    "volcano": ({"volcano.sh/gpu-memory": "10240"}, {"volcano.sh/gpu-memory": "1000"}),
}
"""By name: what the containers that start first ask for, and what the last one asks for."""

KINDS = (
    "main",
    "init-main",
    "init-plain",
    "sidecar-plain",
    "init-sidecar-main",
    "sidecar-init-main",
    "main-second",
)
"""The containers of a pod, in the order in which the kubelet starts them; `plain` asks for nothing."""


@dataclass(frozen=True)
class Attempt:
    """A pod, and the annotations that its author writes while it waits."""

    pod: Object
    later: dict[str, str]


def attempts(kind: str, model: str, uuids: str) -> Iterator[Attempt]:
    """Yields every demand with every wish, before admission or after it: what one kind has before, the next has after."""
    parts = kind.split("-")
    for at, (named, (first, last)) in enumerate(DEMANDS.items(), start=KINDS.index(kind)):
        for number, wishes in enumerate(_wishes(parts, model, uuids)):
            moments = ("before", "after")
            for when in moments if EXHAUSTIVE else moments[(at + number) % 2 :][:1]:
                made = _pod(f"{kind}-{named}-{number}-{when}", parts, first, last)
                if when == "before":
                    made["metadata"]["annotations"] = wishes
                yield Attempt(made, wishes if when == "after" else {})


def counted_amounts(body: Object) -> dict[str, int]:
    """What quotas count of a stored pod: containers and sidecars add up, a plain init container counts with the
    sidecars before it where that is more.
    """
    return {name: _counted(body["spec"], name) for name in COUNTED}


def granted_amounts(body: Object) -> dict[str, int]:
    """What its grant is worth, over all cards."""
    text = body["metadata"].get("annotations", {}).get(GRANT)
    shares = [share for slot in json.loads(text)["slots"] for share in slot["shares"]] if text else []
    return {
        MEMORY: sum(share["memory"] for share in shares if not share.get("whole")),
        WHOLE: sum(bool(share.get("whole")) for share in shares),
        COMPUTE: sum(share.get("compute") or 0 for share in shares),
    }


def _wishes(parts: list[str], model: str, uuids: str) -> Iterator[dict[str, str]]:
    yield from ({f"gpu-count.cotenant.dev/{name}": "8"} for name in parts)
    yield {f"gpu-count.cotenant.dev/{name}": "3" for name in parts}
    yield {"cotenant.dev/gpu-model": model}
    yield {"cotenant.dev/gpu-uuid": uuids}
    yield {"cotenant.dev/placement": "spread"}
    yield {"cotenant.dev/enforce": "enforce"}
    yield {
        GRANT: json.dumps({"version": 1, "uid": "mine", "slots": []}),
        "cotenant.dev/retry": "1",
        **{
            f"{prefix}.cotenant.dev/{parts[-1]}": "all"
            for prefix in ("devices", "compute", "card-memory", "mps-memory")
        },
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "volcano.sh/gpu-index": "0",
    }


def _pod(name: str, parts: list[str], first: Object, last: Object) -> Object:
    bodies = []
    for at, part in enumerate(parts):
        asked = {} if part == "plain" else last if at == len(parts) - 1 and at else first
        bodies.append(container(part, **asked))
        if part == "sidecar":
            bodies[-1]["restartPolicy"] = "Always"
    starting = [body for body in bodies if body["name"] in ("init", "sidecar")]
    return pod(name, *(body for body in bodies if body not in starting), init=starting, **GATED)


def _counted(spec: Object, resource: str) -> int:
    def asked(body: Object) -> int:
        return amount(body.get("resources", {}).get("requests", {}).get(resource, "0"))

    sidecars = most = 0
    for body in spec.get("initContainers", ()):
        own = asked(body)
        most = max(most, sidecars + own)
        sidecars += own if body.get("restartPolicy") == "Always" else 0
    return max(most, sidecars + sum(asked(body) for body in spec["containers"]))
