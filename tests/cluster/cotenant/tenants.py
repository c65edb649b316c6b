"""What programs/tenant.py tells from inside its container, beside what the node's own side says of it."""

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster

from cotenant.hardware.standin.driver import StandIn

GRANULE = 2 << 20


@dataclass(frozen=True)
class Told:
    owner: str
    """The pod's UID in `limits`."""
    limits: dict[str, list[int]]
    """By card: bytes, and what a context costs."""
    cards: list[str]
    """UUIDs as CUDA tells them."""
    got: dict[str, int]
    """Bytes that it could allocate on each, before it was refused."""
    environment: dict[str, str]


def told(cluster: Cluster, pod: Object, container: str = "main", seconds: float = 60) -> Told:
    meta = pod["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log"
    end = time.monotonic() + seconds
    while True:
        said = cluster.api.request("GET", path, query={"container": container})
        if isinstance(said, dict):  # what it tells is JSON, and the client reads that
            return Told(**said)
        if time.monotonic() > end:
            raise AssertionError(f"{meta['name']}/{container} said only: {said}")
        time.sleep(0.1)


def granted(pod: Object, container: str = "main") -> dict[str, int]:
    """Bytes by card, from the pod's grant."""
    grant = json.loads(pod["metadata"]["annotations"]["cotenant.dev/grant"])
    assert grant["uid"] == pod["metadata"]["uid"]
    slot = next(each for each in grant["slots"] if container in (each["container"], *each.get("init", ())))
    return {share["uuid"]: share["memory"] for share in slot["shares"]}


def account(standin: StandIn) -> dict[str, dict[str, int]]:
    """The stand-in driver's own account: bytes by card of each pod's processes, found by their host pids."""
    found: dict[str, dict[str, int]] = {}
    for process in standin.processes():
        assert process.pid is not None, f"{process.name} holds memory and has no pid on this node"
        by_card = found.setdefault(pod_of(process.pid), {})
        for card, used in process.used.items():
            by_card[card] = by_card.get(card, 0) + used
    return found


def pod_of(pid: int) -> str:
    """The UID of the pod whose cgroup the process is in."""
    text = Path(f"/proc/{pid}/cgroup").read_text()
    found = re.search(r"pod([0-9a-f]{8}[-_][0-9a-f_-]{27})", text)
    assert found, f"process {pid} is in no pod: {text}"
    return found[1].replace("_", "-")


def mismatches(
    said: Told, pod: Object, standin: dict[str, dict[str, int]], container: str = "main"
) -> Iterable[str]:
    """All that is not as it must be in one container of a pod, in sentences."""
    uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
    grant = granted(pod, container)
    if said.owner != uid:
        yield f"{name}: the UID in limits is {said.owner}, its own is {uid}"
    if sorted(said.cards) != sorted(grant):
        yield f"{name}: CUDA shows {said.cards}, granted are {sorted(grant)}"
    if {card: size for card, (size, _) in said.limits.items()} != grant:
        yield f"{name}: limits are {said.limits}, granted is {grant}"
    for card, size in grant.items():
        used = standin.get(uid, {}).get(card, 0)
        if not size - GRANULE < used <= size:
            yield f"{name}: the driver counts {used} bytes on {card}, its size is {size}"
        context = said.limits.get(card, [0, 0])[1]
        if said.got.get(card, 0) + context != used:
            yield f"{name}: it got {said.got.get(card)} and a context of {context}, the driver counts {used}"
