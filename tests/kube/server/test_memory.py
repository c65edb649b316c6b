"""What a server remembers does not grow with what is sent to it: the process's memory is watched."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kube.admission.reviews import asked
from kube.builders import container, node_json, pod
from kube.hostile import another, hostile_pods
from kube.virtual_time import run
from kube.world import World

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.review import review
from cotenant.kube.admission.settings import AdmissionSettings
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS
from cotenant.kube.extender import messages
from cotenant.kube.pods.demand import demand_of
from cotenant.kube.pods.fields import gpu_fields
from cotenant.kube.pods.requests import pod_requests

MIB = 2**20
LONG = 250_000
DIALECTS = Dialects()


def resident() -> int:
    """Bytes of this process."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024


def hostile(**changes: Any) -> list[bytes]:
    """Two pods of every kind that the API server would store, with these fields of their own."""
    return [
        json.dumps(
            {
                **body,
                **changes,
                "spec": {**body["spec"], **changes.get("spec", {})},
                "metadata": _meta(body, at),
            }
        ).encode()
        for at, body in enumerate(islice(hostile_pods(Random(7), LONG, stored=True), 46))
    ]


def _meta(body: dict[str, Any], at: int) -> dict[str, Any]:
    return {**body["metadata"], "name": f"it-{at}", "uid": f"uid-{at}", "resourceVersion": str(at)}


def grown(act: Callable[[bytes], object], messages_: list[bytes], count: int) -> int:
    """Returns by how many bytes the process has grown when this was done with as many messages, no two alike."""
    for message in messages_:
        act(message)
    before = resident()
    for number in range(count):
        act(another(messages_[number % len(messages_)], number))
    return resident() - before


def test_refused_and_admitted_pods_leave_nothing_behind_in_the_webhook() -> None:
    def reviewed(message: bytes) -> None:
        assert review(message, AdmissionSettings(), DIALECTS).code == 200

    sent = [json.dumps(asked(body)).encode() for body in islice(hostile_pods(Random(7), LONG), 60)]
    assert grown(reviewed, sent, 1500) < 16 * MIB


def test_no_field_makes_a_refusal_long() -> None:
    """It goes back to the author, into logs and events."""
    for body in islice(hostile_pods(Random(3), LONG), 40):
        answer = json.loads(review(json.dumps(asked(body)).encode(), AdmissionSettings(), DIALECTS).body)
        response = answer["response"]
        if not response["allowed"]:
            assert len(response["status"]["message"]) < 1000
        assert sum(map(len, response.get("warnings", ()))) < 2000


def test_pods_that_kube_scheduler_asks_about_leave_nothing_behind() -> None:
    """The same few pods, edited for ever: their wishes, as long as annotations may be."""

    async def main() -> int:
        at = World()
        at.api.add_node(node_json("n1", 8, 8))

        def asks(message: bytes) -> None:
            at.decider.filter(messages.read(b'{"Pod":%b,"NodeNames":["n1"]}' % message, messages.Args))

        return grown(asks, hostile(), 1500)

    assert run(main()) < 24 * MIB


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded"])
@pytest.mark.parametrize("gpu", [True, False])
def test_what_is_kept_of_a_pod_is_little_whoever_wrote_it(phase: str, gpu: bool) -> None:
    """Waiting, running and ended pods, with and without GPU: all of them are in every server's memory."""
    keep, kept = gpu_fields(DIALECTS).keep, list[Pod]()

    def keeps(message: bytes) -> None:
        kept.append(keep(PODS.decode(message if gpu else _without_gpu(message))))

    sent = hostile(status={"phase": phase}, spec={"nodeName": "" if phase == "Pending" else "n1"})
    most = {"Pending": 16_000, "Running": 32_000}.get(phase, 4_000) if gpu else 4_000
    assert grown(keeps, sent, 600) < 600 * most + 4 * MIB


def _without_gpu(message: bytes) -> bytes:
    return message.replace(b"cotenant.dev/gpu-memory", b"memory").replace(b"cotenant.dev/gpu-slot", b"cpu")


@pytest.mark.parametrize("many", [3, 40])
def test_a_pod_without_gpu_takes_as_much_of_its_node_as_before(many: int) -> None:
    asked_ = {"cpu": "1500m", "memory": "1Gi", "example.com/card": "2"}
    each = [container(f"c{at}", **asked_) for at in range(many)]
    body = pod(*each, init=[container("side", sidecar=True, cpu="1"), container("first", cpu="900")])
    for listed in (*body["spec"]["containers"], *body["spec"]["initContainers"]):
        listed["resources"]["requests"] = listed["resources"]["limits"]
    body["spec"] |= {"nodeName": "n1", "overhead": {"cpu": "250m"}}
    whole = PODS.decode(json.dumps(body).encode())
    assert pod_requests(gpu_fields(DIALECTS).keep(whole)) == pod_requests(whole)


def test_a_wish_that_is_too_long_is_refused_as_the_server_keeps_it_too() -> None:
    body = pod(container("main", memory="1Gi"), annotations={names.GPU_UUID: "GPU-1," * 5000})
    whole = PODS.decode(json.dumps(body).encode())
    for each in (whole, gpu_fields(DIALECTS).keep(copy.copy(whole))):
        with pytest.raises(BadInput, match="longer than 12288 characters"):
            demand_of(each, DIALECTS)
