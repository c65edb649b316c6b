"""What a server remembers does not grow with what is sent to it: the process's memory is watched."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from kube.admission.reviews import asked
from kube.builders import container, node_json, pod
from kube.hostile import hostile_pods
from kube.virtual_time import run
from kube.world import World

from cotenant.core.errors import BadInput, CotenantError
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


def grown(act: Callable[[dict[str, Any]], object], count: int, *, stored: bool = False) -> int:
    """Returns by how many bytes the process has grown when this was done with so many hostile pods."""
    bodies = hostile_pods(Random(7), LONG, stored=stored)
    for body in islice(bodies, 80):
        act(body)
    before = resident()
    for body in islice(bodies, count):
        act(body)
    return resident() - before


def test_refused_and_admitted_pods_leave_nothing_behind_in_the_webhook() -> None:
    def reviewed(body: dict[str, Any]) -> None:
        answer = review(json.dumps(asked(body)).encode(), AdmissionSettings(), DIALECTS)
        assert answer.code == 200

    assert grown(reviewed, 1200) < 16 * MIB


def test_no_field_makes_a_refusal_long() -> None:
    """It goes back to the author, into logs and events."""
    for body in islice(hostile_pods(Random(3), LONG), 80):
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
        edits = 0

        def asks(body: dict[str, Any]) -> None:
            nonlocal edits
            edits += 1
            uid = f"uid-{edits % 20}"
            body["metadata"] |= {"name": uid, "uid": uid, "resourceVersion": str(edits)}
            args = msgspec.json.encode({"Pod": body, "NodeNames": ["n1"]})
            try:
                at.decider.filter(messages.read(args, messages.Args))
            except BadInput:
                return

        return grown(asks, 1200, stored=True)

    assert run(main()) < 24 * MIB


def test_what_is_kept_of_a_pod_is_little_whoever_wrote_it() -> None:
    """Waiting, running and ended pods, with and without GPU: a list of all of them is in every server's memory."""
    keep = gpu_fields(DIALECTS).keep
    for phase in ("Pending", "Running", "Succeeded"):
        kept: list[Pod] = []

        def keeps(body: dict[str, Any], phase: str = phase, kept: list[Pod] = kept) -> None:
            body["status"] = {"phase": phase}
            body["spec"]["nodeName"] = "" if phase == "Pending" else "n1"
            if len(kept) % 2:
                _without_gpu(body)
            for each in body["spec"]["containers"]:
                each.setdefault("resources", {}).setdefault("limits", {})
            made = keep(PODS.decode(json.dumps(body).encode()))
            kept.append(made)
            try:
                demand_of(made, DIALECTS)
            except CotenantError:
                return

        assert grown(keeps, 800, stored=True) < 800 * 16_000, phase


def _without_gpu(body: dict[str, Any]) -> None:
    for each in body["spec"]["containers"]:
        limits = each.get("resources", {}).get("limits", {})
        each["resources"] = {"limits": {key: text for key, text in limits.items() if "/" not in key}}


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
