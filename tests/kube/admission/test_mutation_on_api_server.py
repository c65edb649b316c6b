"""A real API server takes what admission makes of a pod, and what it stores needs no further change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kube.builders import container, counted_by_kubernetes, pod

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.binding import bind_annotations
from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.pod_grant import PodGrant, SlotGrant
from cotenant.dialects.quantity import parse_whole
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.mutation import mutate
from cotenant.kube.admission.settings import AdmissionSettings
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import KubeError
from cotenant.kube.api.resources import PODS, RESOURCE_QUOTAS

pytestmark = pytest.mark.asyncio

DIALECTS = Dialects(aliyun=Aliyun(unit="MiB"), nvidia=Nvidia(enabled=True))
ADMISSION = AdmissionSettings()
LONGEST = "x" * 63
EVERYTHING = pod(
    container("main", memory="4G", compute="30"),
    container(LONGEST, **{"aliyun.com/gpu-mem": "3803"}),
    container("cuda", **{"volcano.sh/gpu-memory": "1k"}),
    container("plain"),
    container("card", **{"nvidia.com/gpu": "1"}),
    init=[
        container("big", memory="1.5Gi"),
        container("side", sidecar=True, **{"volcano.sh/gpu-memory": 2000}),
        container("late", **{"aliyun.com/gpu-mem": "5e3"}),
    ],
    annotations={"gpu-count.cotenant.dev/big": "2"},
)


async def stored(client: Client, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    made = await client.create(PODS, body, namespace)
    return await client.get_path(PODS.path(namespace, made.metadata.name), dict[str, Any])


@pytest.mark.parametrize(
    "body",
    [
        EVERYTHING,
        pod(container("main"), init=[container("fetch", whole="2")]),
        pod(container("main", memory="4000000000"), schedulerName="volcano"),
    ],
)
async def test_what_is_stored_changes_nothing_more(
    client: Client, namespace: str, body: dict[str, Any]
) -> None:
    mutation = mutate(body, ADMISSION, DIALECTS)
    kept = await stored(client, namespace, mutation.pod)
    again = mutate(kept, ADMISSION, DIALECTS)
    assert again.patch == []
    assert [(slot.container, slot.demand) for slot in again.demand.slots] == [
        (slot.container, slot.demand) for slot in mutation.demand.slots
    ]
    counted = counted_by_kubernetes(kept, "cotenant.dev/gpu-slot", lambda text: parse_whole(text, "it", "1"))
    assert counted == len(mutation.demand.slots)


async def test_the_annotations_of_a_grant_have_names_that_it_takes(client: Client, namespace: str) -> None:
    mutation = mutate(EVERYTHING, ADMISSION, DIALECTS)
    kept = await stored(client, namespace, mutation.pod)
    cards = {f"GPU-{index}": GPU(f"GPU-{index}", index, "T4", 2**40) for index in range(2)}
    grant = PodGrant(
        kept["metadata"]["uid"],
        tuple(
            SlotGrant(slot.container, tuple(Share(uuid, 2**30) for uuid in cards))
            for slot in mutation.demand.slots
        ),
    )
    annotations = bind_annotations(mutation.demand.slots, grant, cards, 1, DIALECTS)
    await client.merge_patch(PODS, "it", {"metadata": {"annotations": annotations}}, namespace)
    kept = await client.get_path(PODS.path(namespace, "it"), dict[str, Any])
    assert annotations.items() <= kept["metadata"]["annotations"].items()


QUOTAS = RESOURCE_QUOTAS.raw
COUNTED = ("requests.cotenant.dev/gpu-memory", "requests.cotenant.dev/gpu", "requests.cotenant.dev/gpu-slot")


async def test_a_quota_counts_what_the_pod_is_charged(client: Client, namespace: str) -> None:
    """Whatever the dialect, and also where an init container is larger than all containers together."""
    nothing = {"hard": dict.fromkeys(COUNTED, "1000Gi"), "used": dict.fromkeys(COUNTED, "0")}
    await client.create(QUOTAS, {"metadata": {"name": "gpu"}, "spec": {"hard": nothing["hard"]}}, namespace)
    await client.merge_patch(QUOTAS, "gpu", {"status": nothing}, namespace, subresource="status")
    await asyncio.sleep(1)  # admission knows quotas from a cache of its own
    memory = whole = slots = 0
    bodies = [
        EVERYTHING,
        pod(container("a", memory="4Gi"), container("b", memory="6Gi"), init=[container("i", memory="20Gi")]),
        pod(container("a"), init=[container("i", memory="3Gi")]),
    ]
    for number, body in enumerate(bodies):
        mutation = mutate(body, ADMISSION, DIALECTS)
        mutation.pod["metadata"] = {**mutation.pod["metadata"], "name": f"pod-{number}"}
        await client.create(PODS, mutation.pod, namespace)
        memory += mutation.demand.memory
        whole += mutation.demand.whole
        slots += len(mutation.demand.slots)
    quota = await client.get_path(QUOTAS.path(namespace, "gpu"), dict[str, Any])
    used = [parse_whole(quota["status"]["used"][name], name, "1") for name in COUNTED]
    assert used == [memory, whole, slots]


@pytest.mark.parametrize("text", ["4GiB", "4gi", "1.5", "1500m", "-1", "4.1Gi", "0.1", "1e-3", "x"])
async def test_quantities_that_we_refuse_it_refuses_too(client: Client, namespace: str, text: str) -> None:
    with pytest.raises(KubeError):
        await client.create(PODS, pod(container("main", memory=text)), namespace)


@pytest.mark.parametrize(
    "text", ["4Gi", "0.5Gi", ".5Ki", "5.Ki", "1E3", "2T", "1Pi", "3000m", "4000000u", "+3", "-0", "1k"]
)
async def test_quantities_that_we_take_it_takes_for_the_same(
    client: Client, namespace: str, text: str
) -> None:
    kept = await stored(client, namespace, pod(container("main", memory=text)))
    shown = kept["spec"]["containers"][0]["resources"]["requests"]["cotenant.dev/gpu-memory"]
    assert parse_whole(shown, "it", "1") == parse_whole(text, "it", "1")
