"""Whose memory it is that the driver reports, what of it slots do not count, and what stays when it is given back."""

from __future__ import annotations

import pytest
from kube.agent.nodes import CARDS, GIB, A, B, make, pod, shimmed
from msgspec.structs import replace

from cotenant.core.grant import Share
from cotenant.hardware.nvml import CardProcess, CardReading
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import PodProcess, Sight
from cotenant.kube.agent.containers.measuring import with_measured
from cotenant.kube.agent.containers.use import ContainerUse
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.agent.snapshot import snapshot
from cotenant.kube.api.objects import ContainerStatus, Pod, PodStatus
from cotenant.observe.view import GrantView, View

MAIN, SIDE, INIT = "a" * 64, "b" * 64, "c" * 64


def running(pod: Pod, **ids: str) -> Pod:
    """With these container IDs; one that begins with `init` is an init container."""
    statuses = [
        ContainerStatus(name, container_id=f"containerd://{id}" if id else "") for name, id in ids.items()
    ]
    return replace(
        pod,
        status=PodStatus(
            "Running",
            container_statuses=tuple(each for each in statuses if not each.name.startswith("init")),
            init_container_statuses=tuple(each for each in statuses if each.name.startswith("init")),
        ),
    )


def sight(*processes: tuple[str, str, str, int | None]) -> Sight:
    """Processes as (GPU, pod UID, container ID, bytes)."""
    cards, of_pods = [], {}
    for uuid, gpu in CARDS.items():
        here = [(at, each) for at, each in enumerate(processes, 100) if each[0] == uuid]
        listed = tuple(CardProcess(pid, size) for pid, (_, _, _, size) in here)
        cards.append(CardReading(gpu, sum(each.bytes or 0 for each in listed), listed))
        of_pods[uuid] = tuple(
            PodProcess(pid, 1, Owner(uid, f"cri-{id}.scope")) for pid, (_, uid, id, _) in here
        )
    busy = {A: {Owner(uid, f"cri-{id}.scope"): 30 for uuid, uid, id, _ in processes if uuid == A}}
    return Sight(tuple(cards), {}, 0.0, granted=True, busy=busy, processes=of_pods)


@pytest.fixture
def slots(tmp_path) -> NodeSlots:
    return shimmed(tmp_path / "cotenant")


@pytest.fixture
def use(slots: NodeSlots) -> ContainerUse:
    return ContainerUse(slots)


def shown(use: ContainerUse, seen: Sight, *pods: Pod) -> View:
    now = PodsNow(pods)
    return with_measured(snapshot("n1", seen, now, use.slots.read(), 0.0), use.measured, now)


def used(*grants: GrantView) -> dict[tuple[str, str, str], int]:
    return {(each.name, each.container, share.uuid): share.used for each in grants for share in each.shares}


def test_a_container_without_a_slot_is_named_by_its_cgroup(use):
    sliced = running(pod("sliced", uid="u-9", namespace="team"), main=MAIN, side=SIDE)
    seen = sight((A, "u-9", MAIN, GIB), (A, "u-9", MAIN, GIB), (B, "u-9", SIDE, 3))
    use.look(seen, PodsNow((sliced,)))
    view = shown(use, seen, sliced)
    assert view.grants == ()
    assert used(*view.others) == {("sliced", "main", A): 2 * GIB, ("sliced", "side", B): 3}
    (main, _) = view.others
    assert (main.namespace, main.shares[0].memory, main.shares[0].utilization) == ("team", 0, 30)


def test_its_peak_stays_while_the_container_does_and_begins_anew_with_the_next(use):
    sliced = running(pod("sliced", uid="u-9"), main=MAIN)
    use.look(sight((A, "u-9", MAIN, 5 * GIB)), PodsNow((sliced,)))
    use.look(sight((A, "u-9", MAIN, GIB)), PodsNow((sliced,)))
    nothing = sight()
    use.look(nothing, PodsNow((sliced,)))
    (other,) = shown(use, nothing, sliced).others
    assert (other.used, other.peak) == (0, 5 * GIB)
    again = running(sliced, main=SIDE)
    seen = sight((A, "u-9", SIDE, 2 * GIB))
    use.look(seen, PodsNow((again,)))
    (other,) = shown(use, seen, again).others
    assert (other.used, other.peak) == (2 * GIB, 2 * GIB)
    use.look(nothing, PodsNow())
    assert shown(use, nothing).others == ()
    assert (use.measured.others, use.measured.peaks) == ({}, {}), (
        "nothing is remembered of pods that are gone"
    )


@pytest.mark.parametrize(
    ("ids", "named"),
    [({"main": ""}, ["main"]), ({"main": "", "side": ""}, []), ({"main": SIDE}, []), ({}, [])],
    ids=["the only container", "one of two", "another container", "none is known"],
)
def test_a_container_whose_id_is_not_known_is_its_pod_s_only_one_or_nobody_s(use, ids, named):
    sliced = running(pod("sliced", uid="u-9"), **ids)
    use.look(sight((A, "u-9", MAIN, GIB)), PodsNow((sliced,)))
    assert [each.name for each in use.measured.others] == named


def test_processes_of_pods_that_the_api_server_does_not_show_are_nobody_s(use):
    use.look(sight((A, "u-9", MAIN, GIB)), PodsNow())
    assert use.measured.others == {}


def granted_pod(*containers: str, init: tuple[str, ...] = ()) -> Pod:
    return pod("web", *((name, Share(A, 4 * GIB), init) for name in containers))


def test_memory_that_a_slot_does_not_count_is_added_once_two_looks_have_seen_it(slots, use):
    make(slots, "slot-0001", Share(A, 4 * GIB))
    web = running(granted_pod("main"), main=MAIN)
    seen = sight((A, "u-1", MAIN, 3 * GIB), (B, "u-1", MAIN, 7))
    use.look(seen, PodsNow((web,)))
    assert used(*shown(use, seen, web).grants) == {("web", "main", A): 0}
    use.look(seen, PodsNow((web,)))
    view = shown(use, seen, web)
    assert used(*view.grants) == {("web", "main", A): 3 * GIB, ("web", "main", B): 7}
    assert [share.memory for share in view.grants[0].shares] == [4 * GIB, 0], "none was granted on the second"
    assert view.others == ()
    less = sight((A, "u-1", MAIN, GIB))
    use.look(less, PodsNow((web,)))
    (grant,) = shown(use, less, web).grants
    assert (grant.used, grant.peak) == (GIB, 3 * GIB)


def test_a_third_look_at_the_same_changes_nothing(slots, use):
    make(slots, "slot-0001", Share(A, 4 * GIB))
    now = PodsNow((running(granted_pod("main"), main=MAIN),))
    seen = sight((A, "u-1", MAIN, 3 * GIB))
    for _ in range(2):
        use.look(seen, now)
    before = use.measured
    assert before.uncounted == {"slot-0001": {A: 3 * GIB}}
    use.look(seen, now)
    assert use.measured is before
    use.look(sight((A, "u-1", MAIN, 2 * GIB)), now)
    assert use.measured.uncounted == {"slot-0001": {A: 2 * GIB}}


def test_memory_that_a_slot_counts_is_not_added_again(slots, use, monkeypatch):
    slot = make(slots, "slot-0001", Share(A, 4 * GIB))
    usage = slot.usage()
    counts = usage._replace(
        processes=(type(usage.processes)((_Entry(2 * GIB),))), peak=(2 * GIB, *usage.peak[1:])
    )
    monkeypatch.setattr(type(slot), "usage", lambda _: counts)
    web = running(granted_pod("main"), main=MAIN)
    for total, expected in ((2 * GIB, 2 * GIB), (3 * GIB, 3 * GIB), (GIB, 2 * GIB)):
        seen = sight((A, "u-1", MAIN, total))
        use.look(seen, PodsNow((web,)))
        use.look(seen, PodsNow((web,)))
        assert used(*shown(use, seen, web).grants) == {("web", "main", A): expected}


class _Entry:
    def __init__(self, size: int) -> None:
        self.pid, self.used = 1, (size, *[0] * 15)


def test_init_containers_use_the_slot_of_the_container_that_follows(slots, use):
    make(slots, "slot-0001", Share(A, 4 * GIB))
    make(slots, "slot-0002", Share(A, 4 * GIB), container="side")
    web = pod("web", ("main", Share(A, 4 * GIB), ("init-load",)), ("side", Share(A, 4 * GIB)))
    web = running(web, main="", side=SIDE, **{"init-load": INIT})
    seen = sight((A, "u-1", INIT, GIB), (A, "u-1", SIDE, 5))
    for _ in range(2):
        use.look(seen, PodsNow((web,)))
    assert used(*shown(use, seen, web).grants) == {("web", "main", A): GIB, ("web", "side", A): 5}
    assert use.measured.others == {}


def test_a_container_of_a_pod_with_a_grant_that_has_none_itself_is_one_without_a_grant(slots, use):
    make(slots, "slot-0001", Share(A, 4 * GIB))
    web = running(granted_pod("main"), main=MAIN, helper=SIDE)
    seen = sight((A, "u-1", MAIN, GIB), (B, "u-1", SIDE, 5))
    for _ in range(2):
        use.look(seen, PodsNow((web,)))
    view = shown(use, seen, web)
    assert used(*view.grants) == {("web", "main", A): GIB}
    assert used(*view.others) == {("web", "helper", B): 5}


def test_what_the_driver_does_not_report_is_left_to_the_slot(slots, use):
    make(slots, "slot-0001", Share(A, 4 * GIB))
    web = running(granted_pod("main"), main=MAIN)
    seen = sight((A, "u-1", MAIN, None))
    for _ in range(2):
        use.look(seen, PodsNow((web,)))
    assert used(*shown(use, seen, web).grants) == {("web", "main", A): 0}


def test_a_slot_of_a_pod_that_is_gone_comes_before_that_of_the_pod_with_its_name(slots, use):
    make(slots, "slot-0002", Share(A, GIB), uid="old")
    make(slots, "slot-0001", Share(A, GIB), uid="u-1")
    seen, web = sight(), running(granted_pod("main"), main=MAIN)
    use.look(seen, PodsNow((web,)))
    assert [each.id for each in shown(use, seen, web).grants] == ["old", "u-1"]


def test_drained_gpus_are_marked(use):
    view = with_measured(snapshot("n1", sight(), PodsNow(), [], 0.0), use.measured, PodsNow(), {B})
    assert [gpu.drained for gpu in view.gpus] == [False, True]
