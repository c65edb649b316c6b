"""Whom it takes to open the room: never one too many, never one for nothing."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from kube.scheduling.plain import GI, demands, fleets, gib, granted, slow_place

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.victims import Candidate, Tries, victims


def full(*cards: tuple[int, ...]) -> ClusterLedger:
    """One node `n`, each card filled by pods of these sizes in GiB, named `<card>.<number>`."""
    cluster = ClusterLedger()
    cluster.set_node("n", [GPU(str(at), at, "T4", sum(sizes) * GI) for at, sizes in enumerate(cards)], {})
    for at, sizes in enumerate(cards):
        for number, size in enumerate(sizes):
            cluster.charge("n", granted(f"{at}.{number}", Share(str(at), size * GI)))
    return cluster


def ask(cluster: ClusterLedger, *asked: Demand, **priorities: int) -> tuple[str, ...] | None:
    """All pods are candidates; of priority 0 unless `p0_1=5` says more. Later ones are younger."""
    given_ = {name[1:].replace("_", "."): priority for name, priority in priorities.items()}
    candidates = [Candidate(uid, given_.get(uid, 0), at) for at, uid in enumerate(cluster.pods_on("n"))]
    return victims(cluster, "n", "me", asked, candidates)


def test_nobody_ends_for_a_pod_that_fits() -> None:
    cluster = full((8, 8))
    cluster.release("0.0")
    assert ask(cluster, gib(8)) == ()


def test_nobody_ends_for_nothing() -> None:
    """The node has 16Gi that could be freed, but no card has."""
    cluster = full((8, 8), (8, 8))
    assert ask(cluster, gib(17)) is None
    assert ask(cluster, gib(8), p0_0=1) == ("1.1",)
    assert victims(cluster, "n", "me", [gib(9)], [Candidate("0.0", 0, 0), Candidate("1.0", 0, 0)]) is None
    assert victims(cluster, "n", "me", [gib(8)], []) is None
    assert victims(cluster, "elsewhere", "me", [gib(8)], [Candidate("0.0", 0, 0)]) is None


def test_the_victims_are_on_one_card() -> None:
    cluster = full((4, 4, 4, 4), (6, 10))
    assert ask(cluster, gib(8)) == ("1.1",)
    assert ask(cluster, gib(8), p1_1=1) == ("0.3", "0.2")
    assert ask(cluster, gib(16)) == ("1.1", "1.0")


def test_the_lowest_priority_goes_then_the_youngest() -> None:
    cluster = full((8, 8), (8, 8))
    assert ask(cluster, gib(8), p0_0=3, p0_1=2, p1_0=1, p1_1=2) == ("1.0",)
    assert ask(cluster, gib(8)) == ("1.1",)
    assert ask(cluster, gib(16), p0_0=9) == ("1.1", "1.0")


def test_a_whole_card_is_that_of_the_fewest() -> None:
    assert ask(full((4, 4, 4), (6, 6), (3, 3, 3, 3)), Demand(whole=1)) == ("1.1", "1.0")
    assert ask(full((4, 4), (6, 2)), Demand(whole=2)) == ("1.1", "1.0", "0.1", "0.0")


def test_compute_is_room_too() -> None:
    cluster = ClusterLedger()
    cluster.set_node("n", [GPU("0", 0, "T4", 16 * GI)], {})
    cluster.charge("n", granted("little", Share("0", 8 * GI, 10)))
    cluster.charge("n", granted("much", Share("0", 1 * GI, 90)))
    assert ask(cluster, gib(4, compute=50)) == ("much",)
    assert ask(cluster, gib(12, compute=50)) == ("much", "little")


def test_what_is_held_outside_or_sick_or_held_for_another_cannot_be_opened() -> None:
    cluster = full((8, 8))
    gpu = cluster.gpus("n")[0]
    cluster.set_node("n", [gpu], {"0": 10 * GI})
    assert ask(cluster, gib(8)) is None
    cluster.set_node("n", [GPU("0", 0, "T4", 16 * GI, healthy=False)], {})
    assert ask(cluster, gib(8)) is None
    cluster.set_node("n", [gpu], {})
    cluster.hold("waiting", "n", ["0"])
    assert ask(cluster, gib(8)) is None
    assert victims(cluster, "n", "waiting", [gib(8)], [Candidate("0.0", 0, 0)]) == ("0.0",)
    assert victims(cluster, "n", "me", [gib(8)], [Candidate("0.0", 0, 0)], behind=["waiting"]) == ("0.0",)


def test_a_pod_on_several_cards_is_one_victim() -> None:
    cluster = ClusterLedger()
    cluster.set_node("n", [GPU(str(at), at, "T4", 16 * GI) for at in range(2)], {})
    cluster.charge("n", granted("both", Share("0", 8 * GI), Share("1", 8 * GI)))
    cluster.charge("n", granted("one", Share("0", 8 * GI)))
    cluster.charge("n", granted("other", Share("1", 8 * GI)))
    assert ask(cluster, gib(16, gpus=2)) == ("both",)


def test_a_full_node_of_many_small_pods_is_answered_without_trying_every_set() -> None:
    cluster = full(*[tuple([1] * 40)] * 8)
    found = ask(cluster, gib(20))
    assert found is not None
    assert len(found) == 20
    assert len({uid.split(".")[0] for uid in found}) == 1
    several = ask(cluster, gib(40, gpus=4), gib(5))
    assert several is not None
    assert opens(cluster, several, [gib(40, gpus=4), gib(5)])
    assert not any(opens(cluster, set(several) - {one}, [gib(40, gpus=4), gib(5)]) for one in several)


def opens(cluster: ClusterLedger, gone: object, asked: list[Demand]) -> bool:
    """On core ledgers alone: whether the pod fits once these have ended."""
    ledger = cluster.ledger("n" if "n" in cluster.nodes else "n0").copy()
    for uid in gone:  # type: ignore[attr-defined]
        charged = cluster.charged(uid)
        assert charged is not None
        for charge in charged[1].charges:
            ledger.release(charge.id)
    closed = {card for uid, (_, cards) in cluster.holds().items() if uid != "me" for card in cards}
    return slow_place(ledger, asked, closed) is not None


def brute_force(
    cluster: ClusterLedger, asked: list[Demand], candidates: list[Candidate]
) -> tuple[object, ...] | None:
    """The least of all sets that open the room."""
    costs = [
        (
            max((one.priority for one in some), default=-99),
            len(some),
            sum(one.priority for one in some),
            sorted(-one.started for one in some),
        )
        for size in range(len(candidates) + 1)
        for some in combinations(candidates, size)
        if opens(cluster, [one.uid for one in some], asked)
    ]
    return min(costs, default=None)


@st.composite
def preemptions(draw: st.DrawFn) -> tuple[ClusterLedger, list[Candidate]]:
    cluster = draw(fleets(most=1))
    candidates = [
        Candidate(uid, draw(st.integers(0, 2)), draw(st.integers(0, 5)))
        for uid in cluster.pods_on("n0")
        if draw(st.booleans() | st.just(True))
    ]
    return cluster, candidates


@given(preemptions(), demands())
def test_the_victims_of_one_container_are_the_best_of_all_sets(
    situation: tuple[ClusterLedger, list[Candidate]], demand: Demand
) -> None:
    cluster, candidates = situation
    found = victims(cluster, "n0", "me", [demand], candidates)
    least = brute_force(cluster, [demand], candidates)
    if least is None or found is None:
        assert found is least is None
        return
    taken = [one for one in candidates if one.uid in found]
    assert opens(cluster, found, [demand])
    assert least == (
        max((one.priority for one in taken), default=-99),
        len(taken),
        sum(one.priority for one in taken),
        sorted(-one.started for one in taken),
    )


@given(preemptions(), st.lists(demands(), min_size=2, max_size=3))
def test_the_victims_of_several_containers_open_the_room_and_none_is_spare(
    situation: tuple[ClusterLedger, list[Candidate]], asked: list[Demand]
) -> None:
    cluster, candidates = situation
    found = victims(cluster, "n0", "me", asked, candidates)
    if found is None:
        assert not opens(cluster, [one.uid for one in candidates], asked)
        return
    assert opens(cluster, found, asked)
    assert not any(opens(cluster, set(found) - {one}, asked) for one in found)


def test_two_containers_of_a_pod_on_one_card_are_one_victim() -> None:
    cluster = ClusterLedger()
    cluster.set_node("n", [GPU("0", 0, "T4", 16 * GI)], {})
    cluster.charge("n", granted("two", Share("0", 4 * GI), Share("0", 4 * GI)))
    cluster.charge("n", granted("one", Share("0", 8 * GI)))
    assert ask(cluster, Demand(Memory(bytes=8 * GI)), pone=1) == ("two",)


def test_with_few_tries_left_the_victims_still_open_the_room_and_with_none_there_is_no_answer() -> None:
    cluster, asked = full(*[(40, 40)] * 4), [gib(15)] * 16
    candidates = [Candidate(uid, 0, at) for at, uid in enumerate(cluster.pods_on("n"))]
    tries = Tries(1)
    found = victims(cluster, "n", "me", asked, candidates, tries=tries)
    assert found is not None
    assert opens(cluster, found, asked)
    assert not any(opens(cluster, set(found) - {one}, asked) for one in found)
    assert tries.left < 0
    assert victims(cluster, "n", "me", asked, candidates, tries=tries) is None
