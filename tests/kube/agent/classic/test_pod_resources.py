"""The kubelet's record of who holds what, over real gRPC."""

import asyncio

import pytest
from kube.agent.kubelet import SLOT

from cotenant.kube.agent.classic.pod_resources import (
    Holder,
    PodResources,
    PodResourcesUnavailable,
    read_holders,
)
from cotenant.kube.protos import pod_resources_v1

pytestmark = pytest.mark.asyncio


async def test_holders_are_told_by_device(kubelet):
    kubelet.holders = [
        ("a", "web", "main", ["slot-0000"]),
        ("b", "db", "side", ["slot-0002"]),
        ("c", "x", "y", []),
    ]
    asked = PodResources(kubelet.pod_resources)
    assert await asked.holders() == {
        "slot-0000": (Holder("a", "web", "main"),),
        "slot-0002": (Holder("b", "db", "side"),),
    }
    assert asked.answered is not None
    await asked.close()


async def test_devices_of_others_are_none_of_ours():
    devices = [
        pod_resources_v1.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["slot-0000"]),
        pod_resources_v1.ContainerDevices(resource_name=SLOT, device_ids=["slot-0001"]),
    ]
    container = pod_resources_v1.ContainerResources(name="c", devices=devices)
    pod = pod_resources_v1.PodResources(name="p", namespace="n", containers=[container])
    answer = pod_resources_v1.ListPodResourcesResponse(pod_resources=[pod])
    assert read_holders(answer) == {"slot-0001": (Holder("n", "p", "c"),)}


async def test_a_kubelet_that_has_enough_for_now_is_asked_again(kubelet):
    kubelet.refusals = 5
    asked = PodResources(kubelet.pod_resources)
    assert await asked.holders() == {}
    await asked.close()


async def test_many_who_ask_at_once_share_answers(kubelet):
    asked = PodResources(kubelet.pod_resources)
    await asyncio.gather(*(asked.holders() for _ in range(100)))
    assert kubelet.listed <= 2
    await asked.close()


async def test_nobody_gets_an_answer_to_a_question_asked_before_they_came(kubelet):
    asked = PodResources(kubelet.pod_resources)
    first = asyncio.create_task(asked.holders())
    while not kubelet.listed:  # noqa: ASYNC110 - the test's own turn of the loop
        await asyncio.sleep(0)
    kubelet.holders = [("a", "web", "main", ["slot-0000"])]
    assert "slot-0000" in await asked.holders()
    await first
    await asked.close()


async def test_a_missing_socket_is_told_with_its_path(short_folder):
    asked = PodResources(short_folder / "nowhere.sock", within=0.3)
    with pytest.raises(PodResourcesUnavailable, match=r"nowhere\.sock.*no such socket.*agent\.kubelet"):
        await asked.holders()
    await asked.close()


async def test_a_kubelet_that_is_back_is_found(kubelet):
    asked = PodResources(kubelet.pod_resources, within=5)
    await asked.holders()
    await kubelet.stop()
    waiting = asyncio.create_task(asked.holders())
    await asyncio.sleep(0.2)
    await kubelet.start()
    assert await waiting == {}
    await asked.close()
