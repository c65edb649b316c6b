"""The view of a node: GPUs as surveyed with the pods' grants on them, and slots as their files say."""

from __future__ import annotations

import pytest
from kube.agent.nodes import GIB, make, pod, shimmed

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.hardware.enforcers.choosing import Choice
from cotenant.hardware.enforcers.null import Null
from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import Limits, ProcessUsage, Usage, limits_of
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.grants import container_ids
from cotenant.kube.agent.limits.enforcement import Enforcement
from cotenant.kube.agent.limits.overuse import Overuse
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.slots.confirming import Confirming, Finding
from cotenant.kube.agent.slots.node_slots import NodeSlot
from cotenant.kube.agent.slots.owner import SlotOwner
from cotenant.kube.agent.snapshot import snapshot
from cotenant.kube.api.objects import ContainerStatus, Meta, Pod, PodStatus

ID, OTHER_ID = "9f" * 32, "7e" * 32
NOW = 1000.0
CARDS = (
    CardReading(GPU("GPU-0", 0, "T4", 16 * GIB), 5 * GIB, utilization=40),
    CardReading(GPU("GPU-1", 1, "T4", 16 * GIB, healthy=False), 0, problem="lost"),
)
SIGHT = Sight(CARDS, {"GPU-0": GIB}, NOW - 3, granted=True)
SHARES = (Share("GPU-0", 4 * GIB, 50), Share("GPU-1", GIB))


class UsedSlot(NodeSlot):
    """A slot in which two processes hold memory, the last of them active 30 seconds ago."""

    def usage(self) -> Usage:
        processes = (ProcessUsage(1, (GIB, 0, *[0] * 14)), ProcessUsage(2, (GIB, 7, *[0] * 14)))
        return Usage(processes, (3 * GIB, 7, *[0] * 14), denied=4, over=1, last_active=970 * 10**9)


def used_slot(folder) -> NodeSlot:
    limits: Limits = limits_of("u", "enforce", SHARES, lambda _: 1)
    return UsedSlot("slot-0001", SlotOwner("u", "web", "a", "main"), SHARES, limits, folder)


def test_a_gpu_has_the_survey_s_figures_and_the_pods_shares():
    two = pod("a", ("main", *SHARES), ("side", Share("GPU-0", GIB)), uid="u", namespace="web")
    unreadable = pod("b", uid="v", grant="{")
    (node,) = snapshot("n1", SIGHT, PodsNow((two, unreadable)), [], NOW).nodes
    first, second = node.gpus
    assert (node.name, first.node, first.gpu) == ("n1", "n1", CARDS[0].gpu)
    assert (first.used, first.outside, first.utilization, first.problem) == (5 * GIB, GIB, 40, None)
    assert (second.used, second.outside, second.utilization, second.problem) == (0, 0, None, "lost")
    assert (first.granted, second.granted) == (5 * GIB, GIB)
    assert [str(share) for share in first.shares] == ["web/a"], "a pod's containers are added up"


def test_a_slot_has_its_limits_and_what_its_processes_use(tmp_path):
    (grant,) = snapshot("n1", SIGHT, PodsNow(), [used_slot(tmp_path)], NOW).grants
    assert (grant.id, grant.namespace, grant.name, grant.container) == ("u", "web", "a", "main")
    assert (grant.slot, grant.mode, grant.in_use) == ("slot-0001", "enforce", True)
    assert (grant.denied, grant.over, grant.idle_seconds, grant.processes) == (4, 1, 30.0, (1, 2))
    figures = [(each.uuid, each.memory, each.used, each.peak, each.compute) for each in grant.shares]
    assert figures == [("GPU-0", 4 * GIB, 2 * GIB, 3 * GIB, 50), ("GPU-1", GIB, 7, 7, None)]


def test_a_slot_that_no_process_used_yet_was_never_idle(tmp_path):
    slot = make(shimmed(tmp_path), "slot-0001", *SHARES)
    (grant,) = snapshot("n1", SIGHT, PodsNow(), [slot], NOW).grants
    assert (grant.used, grant.idle_seconds) == (0, None)


def test_a_slot_that_was_removed_meanwhile_is_left_out(tmp_path):
    slots = shimmed(tmp_path)
    slot = make(slots, "slot-0001", *SHARES)
    assert slots.remove(slot)
    assert snapshot("n1", SIGHT, PodsNow(), [slot], NOW).grants == ()


def test_before_the_first_survey_there_are_slots_but_no_gpus(tmp_path):
    view = snapshot("n1", None, PodsNow(), [used_slot(tmp_path)], NOW)
    assert (view.gpus, len(view.grants)) == ((), 1)


def utilization(folder, by_gpu: dict[str, dict[Owner, int]], id: str = ID) -> list[int | None]:
    status = PodStatus(container_statuses=(ContainerStatus("main", container_id=f"containerd://{id}"),))
    pods = [Pod(metadata=Meta(name="a", uid="u"), status=status)]
    view = snapshot("n1", SIGHT._replace(busy=by_gpu), PodsNow(tuple(pods)), [used_slot(folder)], NOW)
    return [share.utilization for grant in view.grants for share in grant.shares]


def test_a_container_s_share_of_a_gpu_s_time_is_that_of_its_processes(tmp_path):
    of_two = {Owner("u", f"cri-{ID}.scope"): 30, Owner("u", f"cri-{OTHER_ID}.scope"): 50, Owner("v", ID): 9}
    assert utilization(tmp_path, {"GPU-0": of_two, "GPU-1": {}}) == [30, 0]
    assert utilization(tmp_path, {"GPU-0": {Owner("u", ID): 130}}) == [100, None]


@pytest.mark.parametrize(
    ("by_gpu", "id"),
    [({}, ID), ({"GPU-0": {Owner("u", ID): 30}}, ""), ({"GPU-0": {Owner("u", ID): 30}}, ID[:8])],
    ids=["the driver does not report it", "no container ID", "a container ID that is too short"],
)
def test_utilization_is_none_where_it_is_not_known(tmp_path, by_gpu, id):
    assert utilization(tmp_path, by_gpu, id) == [None, None]


def test_processes_that_are_not_held_to_the_limit_are_shown(tmp_path):
    slot = make(shimmed(tmp_path), "slot-0001", *SHARES)
    unlimited = {"slot-0001": frozenset({12, 7}), "slot-0002": frozenset({9})}
    (grant,) = snapshot("n1", SIGHT, PodsNow(), [slot], NOW, unlimited).grants
    assert grant.unlimited == (7, 12)


def test_container_ids_are_read_from_the_status():
    status = PodStatus(
        container_statuses=(ContainerStatus("main", container_id=f"containerd://{ID}"), ContainerStatus("b")),
        init_container_statuses=(ContainerStatus("side", container_id=f"cri-o://{OTHER_ID}"),),
    )
    found = container_ids([Pod(metadata=Meta(name="a", uid="u"), status=status)])
    assert found == {("u", "main"): ID, ("u", "b"): "", ("u", "side"): OTHER_ID}


def test_what_was_asked_to_hold_a_container_and_what_holds_it_are_two_things(tmp_path):
    slot = used_slot(tmp_path)
    confirming = Confirming(shimmed(tmp_path))
    confirming.findings = {slot.key: Finding(slot, "shim", "", {})}
    enforcement = Enforcement("driver", confirming)
    enforcement.over = {
        slot.key: (Overuse("GPU-0", 4 * GIB, 5 * GIB, ()), Overuse("GPU-1", GIB, GIB + 7, ()))
    }
    view = snapshot("n1", SIGHT, PodsNow(), [slot], NOW, {}, enforcement)
    (grant,) = view.grants
    assert (grant.enforcer_asked, grant.enforcer, grant.over_bytes) == ("driver", "shim", GIB + 7)
    assert view.nodes[0].enforcer == "driver"
    enforcement.choice = Choice(Null(), "", {}, "driver is asked for and cannot be used")
    (node,) = snapshot("n1", SIGHT, PodsNow(), [], NOW, {}, enforcement).nodes
    assert node.enforcer == "shim", "what it really offers"
    assert enforcement.holds("slot-0002") == ""


def test_a_container_that_starts_is_taken_up_once(tmp_path):
    enforcement = Enforcement("driver", Confirming(shimmed(tmp_path)))
    assert not enforcement.some.is_set()
    enforcement.started("slot-0001")
    enforcement.started("slot-0001")
    assert enforcement.some.is_set()
    assert enforcement.take_started() == ["slot-0001"]
    assert enforcement.take_started() == []
    assert not enforcement.some.is_set()
