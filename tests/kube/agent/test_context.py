"""What an agent remembers of its node's pods: all that its parts read, and little more."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from kube.builders import MEMORY, SLOT, container, pod

from cotenant.core.grant import Share
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant
from cotenant.kube.agent.grants import container_ids, grants_of
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.parts import PARTS
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.api.informers import Informers
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS, Resource
from cotenant.kube.settings import Settings

SETTINGS = Settings(agent=AgentSettings(node="n1"))
GRANT = PodGrant("u", (SlotGrant("main", (Share("GPU-0", 2**30),), ("first",)),))


def watched() -> Resource[Pod]:
    """Pods as the agent's own parts watch them."""
    needs = (need for part in PARTS for need in part.needs(SETTINGS))
    return Informers(None, needs)[PODS].resource  # type: ignore[arg-type]


def on_node(phase: str, annotations: dict[str, str], **limits: str) -> bytes:
    body: dict[str, Any] = pod(
        container("main", **limits), init=[container("first", **limits)], annotations=annotations
    )
    for each in (*body["spec"]["containers"], *body["spec"]["initContainers"]):
        each["resources"] = {"limits": limits, "requests": limits}
    body["metadata"] |= {"uid": "u", "namespace": "web"}
    body["spec"]["nodeName"] = "n1"
    statuses = [{"name": name, "containerID": f"containerd://{name:x<64}"} for name in ("main", "first")]
    body["status"] = {
        "phase": phase,
        "containerStatuses": statuses[:1],
        "initContainerStatuses": statuses[1:],
    }
    return json.dumps(body).encode()


@pytest.mark.parametrize(("phase", "gpu"), [("Running", True), ("Running", False), ("Failed", True)])
def test_pods_with_thousands_of_annotations_take_little_memory_of_an_agent(phase: str, gpu: bool) -> None:
    """An agent has 256 MiB. An author may name the node in a pod, and nothing of it needs to start."""
    asked = {MEMORY: "1Gi", SLOT: "1"} if gpu else {"cpu": "1"}
    sent, resource = on_node(phase, {f"{at}": "" for at in range(20_000)}, **asked), watched()
    for _ in range(60):  # until nothing is loaded any more, and coverage has taken its probes out
        resource.decode(sent)
    tracemalloc.start()
    kept = [resource.decode(sent) for _ in range(20)]
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 20
    assert now < 20 * 16_000


def test_an_agent_keeps_what_its_parts_read_of_a_pod() -> None:
    annotations = {names.GRANT: write_grant(GRANT), names.ENFORCE: "warn", "example.com/note": "x"}
    sent = on_node("Running", annotations, **{MEMORY: "1Gi", SLOT: "1"})
    whole, kept = PODS.decode(sent), watched().decode(sent)
    assert kept.metadata.annotations == {key: annotations[key] for key in (names.GRANT, names.ENFORCE)}
    assert grants_of([kept]) == grants_of([whole]) == {"u": GRANT}
    assert container_ids([kept]) == container_ids([whole])
    assert len(container_ids([kept])) == 2
    assert PodsNow((kept,)).requests == PodsNow((whole,)).requests
    assert PodsNow((kept,)).requests[MEMORY] == 2**30


def test_the_grant_of_a_pod_that_has_ended_is_not_counted_by_an_agent() -> None:
    sent = on_node("Failed", {names.GRANT: write_grant(GRANT)}, **{MEMORY: "1Gi", SLOT: "1"})
    assert grants_of([watched().decode(sent)]) == {}
