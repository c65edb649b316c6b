"""Filter, prioritize and preempt answer from the ledger, in constant words, and never evict for nothing."""

import asyncio
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kube import virtual_time
from kube.builders import node_json, pod_json, typed
from kube.fakeapi import hangs
from kube.world import World

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.kube.extender.deciding import BAD_DEMAND
from cotenant.kube.extender.messages import Args, MetaPod, MetaVictims, PreemptArgs
from cotenant.kube.scheduling import victims
from cotenant.kube.scheduling.reasons import BEING_BOUND, REASONS
from cotenant.kube.scheduling.scan import Verdict


def run(main):
    return virtual_time.run(main())


def cluster(**nodes: tuple[int, ...]) -> World:
    at = World()
    for name, cards in nodes.items():
        at.api.add_node(node_json(name, *cards))
    return at


async def runs(at: World, name: str, memory: str | None, node: str = "n1", **how) -> None:
    at.api.add(pod_json(name, memory, **how))
    await at.bind(name, node)


def filtered(at: World, body, *nodes: str):
    said = json.loads(at.decider.filter(Args(typed(body), node_names=list(nodes))))
    assert said["Error"] == ""
    return said["NodeNames"], said["FailedNodes"], said["FailedAndUnresolvableNodes"]


def chosen(at: World, body, *nodes: str):
    said = json.loads(at.decider.choose(Args(typed(body), node_names=list(nodes))))
    assert said["Error"] == ""
    return said["NodeNames"], said["FailedNodes"], said["FailedAndUnresolvableNodes"]


def ranked_first(at: World, body, *nodes: str) -> list[str]:
    """The node to which prioritize gives most, of those that filter names."""
    fits = filtered(at, body, *nodes)[0]
    said = json.loads(at.decider.prioritize(Args(typed(body), node_names=fits)))
    return [each["Host"] for each in said if each["Score"] == 10]


def preempted(at: World, body, **proposed: tuple[str, ...]) -> dict[str, set[str]]:
    """By node, the names of the victims."""
    asked = {
        node: MetaVictims(tuple(MetaPod(f"uid-{name}") for name in pods), 0)
        for node, pods in proposed.items()
    }
    said = json.loads(at.decider.preempt(PreemptArgs(typed(body), node_name_to_meta_victims=asked)))
    kept = said["NodeNameToMetaVictims"]
    for each in kept.values():
        assert len({pod["UID"] for pod in each["Pods"]}) == len(each["Pods"])
    return {node: {pod["UID"].removeprefix("uid-") for pod in each["Pods"]} for node, each in kept.items()}


def test_nodes_are_sorted_into_those_that_fit_those_that_may_and_those_that_never_will():
    async def main():
        at = cluster(free=(16,), full=(16,), small=(4,), bare=())
        await runs(at, "x", "12Gi", "full")
        fits, failed, never = filtered(at, pod_json("a", "8Gi"), "free", "full", "small", "bare", "unknown")
        assert fits == ["free"]
        assert failed == {"full": REASONS[Verdict.NO_ROOM]}
        assert never == {
            "small": REASONS[Verdict.TOO_BIG],
            "bare": REASONS[Verdict.NO_CARDS],
            "unknown": REASONS[Verdict.NO_CARDS],
        }
        assert len(at.line) == 0
        wish = pod_json("b", "1Gi", annotations={names.GPU_MODEL: "H100"})
        assert filtered(at, wish, "free")[2] == {"free": REASONS[Verdict.UNKNOWN_MODEL]}

    run(main)


def test_reasons_are_constant_and_have_no_figures():
    """A reason that changes makes kube-scheduler try again at once, again and again."""
    assert set(REASONS) == set(Verdict) - {Verdict.FITS}
    for reason in (*REASONS.values(), BAD_DEMAND, BEING_BOUND):
        assert not re.search(r"\d", reason)


def test_who_fits_nowhere_waits_in_line():
    async def main():
        at = cluster(n1=(16,))
        await runs(at, "x", "12Gi")
        at.api.add(pod_json("a", "8Gi"))
        assert filtered(at, pod_json("a", "8Gi"), "n1")[0] == []
        assert at.line.place_of("uid-a") == 1
        assert [reason for _, reason in at.recorder._waiting] == ["WaitingForGPU"]

    run(main)


def test_a_demand_bigger_than_any_card_says_so():
    async def main():
        at = cluster(n1=(16,), n2=(16,))
        body = pod_json("a", "17Gi")
        at.api.add(body)
        fits, failed, never = filtered(at, body, "n1", "n2")
        assert (fits, failed) == ([], {})
        assert set(never.values()) == {REASONS[Verdict.TOO_BIG]}
        ((_, message),) = at.recorder._waiting.values()
        assert "17Gi" in (message if isinstance(message, str) else message())

    run(main)


def test_a_pod_without_gpu_passes_everywhere():
    at = cluster(n1=(16,))
    body = pod_json("a", None, cpu="1")
    assert filtered(at, body, "n1", "unknown") == (["n1", "unknown"], {}, {})
    said = json.loads(at.decider.prioritize(Args(typed(body), node_names=["n1", "unknown"])))
    assert said == [{"Host": "n1", "Score": 0}, {"Host": "unknown", "Score": 0}]
    assert preempted(at, body, n1=("x",)) == {"n1": {"x"}}


def test_where_the_scheduler_asks_a_pod_without_gpu_is_kept_from_nodes_with_gpus():
    at = cluster(n1=(16,))
    asked = Args(typed(pod_json("a", None, cpu="1")), node_names=["n1", "unknown"])
    said = json.loads(at.decider.prioritize_without_gpu(asked))
    assert said == [{"Host": "n1", "Score": 9}, {"Host": "unknown", "Score": 10}]
    gpu = Args(typed(pod_json("b", "4Gi")), node_names=["n1", "unknown"])
    assert {each["Score"] for each in json.loads(at.decider.prioritize_without_gpu(gpu))} == {0}


def test_a_demand_that_cannot_be_understood_is_refused_and_does_not_wait():
    at = cluster(n1=(16,))
    for annotations in ({names.PLACEMENT: "nonsense"}, {names.gpu_count("other"): "2"}):
        body = pod_json("a", "4Gi", annotations=annotations)
        assert filtered(at, body, "n1", "n2") == ([], {}, {"n1": BAD_DEMAND, "n2": BAD_DEMAND})
        assert len(at.line) == 0
    (((_, reason), (_, message)),) = at.recorder._waiting.items()
    assert reason == "GPUDemandRefused"
    assert "gpu-count" in message
    for verb in (at.decider.prioritize, at.decider.filter):
        with pytest.raises(BadInput, match="nodeCacheCapable"):
            verb(Args(typed(pod_json("a")), node_names=None))


def test_a_pod_that_is_charged_fits_only_where_it_is():
    async def main():
        at = cluster(n1=(16,), n2=(16,))
        await runs(at, "a", "16Gi")
        assert filtered(at, pod_json("a", "16Gi"), "n1", "n2") == (["n1"], {"n2": BEING_BOUND}, {})
        assert filtered(at, pod_json("a", "16Gi"), "n2") == ([], {"n2": BEING_BOUND}, {})
        assert len(at.line) == 0

    run(main)


def test_no_node_at_all():
    at = World()
    assert filtered(at, pod_json("a")) == ([], {}, {})
    assert json.loads(at.decider.prioritize(Args(typed(pod_json("a")), node_names=[]))) == []


@settings(max_examples=30)
@given(st.lists(st.integers(1, 16), min_size=1, max_size=30), st.integers(1, 16))
def test_one_node_is_the_best_and_every_other_has_at_most_nine(cards, size):
    at = cluster(**{f"n{i}": (card,) for i, card in enumerate(cards)})
    every = [f"n{i}" for i in range(len(cards))]
    fits = filtered(at, pod_json("a", f"{size}Gi"), *every)[0]
    assert fits == [name for name, card in zip(every, cards, strict=True) if card >= size]
    said = json.loads(at.decider.prioritize(Args(typed(pod_json("a", f"{size}Gi")), node_names=fits)))
    scores = sorted((each["Score"] for each in said), reverse=True)
    assert [each["Host"] for each in said] == fits
    if fits:
        assert scores[0] == 10
        assert all(0 <= score <= 9 for score in scores[1:])


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.integers(1, 16), max_size=3), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(1, 16)), max_size=12),
    st.sampled_from(["frag", "binpack", "spread"]),
    st.integers(1, 16),
    st.integers(0, 3),
    st.data(),
)
def test_choose_names_the_node_that_prioritize_ranks_first_or_answers_like_filter(
    cards, running, placement, size, gpus, data
):
    """Whatever is asked for, on any of the nodes, and with GPUs held for the pod or for others: the same node
    is taken as if kube-scheduler had scored those that fit, and nobody is refused who fits somewhere.
    """

    async def main():
        at = cluster(**{f"n{i}": tuple(each) for i, each in enumerate(cards)})
        for i, (node, memory) in enumerate(running):
            if node < len(cards) and max(at.free(f"n{node}"), default=0) >= memory:
                await runs(at, f"r{i}", f"{memory}Gi", f"n{node}")
        for uid in ("uid-a", "uid-other"):
            node = data.draw(st.integers(0, len(cards) - 1))
            if data.draw(st.booleans()) and cards[node]:
                at.cluster.hold(uid, f"n{node}", [f"GPU-n{node}-0"])
        every = [f"n{i}" for i in range(len(cards))] + ["unknown"]
        asked = data.draw(st.lists(st.sampled_from(every), unique=True))
        annotations = {names.PLACEMENT: placement}
        if gpus:
            annotations[names.gpu_count("main")] = str(gpus)
        body = pod_json("a", f"{size * max(gpus, 1)}Gi", annotations=annotations)
        best = ranked_first(at, body, *asked)
        found = chosen(at, body, *asked)
        assert found == ((best, {}, {}) if best else filtered(at, body, *asked))
        assert set(asked) == {*found[1], *found[2]} or best

    run(main)


def test_whom_choose_refuses_waits_in_line_and_whom_it_serves_does_not():
    async def main():
        at = cluster(n1=(16,), n2=(16,), small=(4,))
        await runs(at, "x", "12Gi")
        body = pod_json("a", "8Gi")
        at.api.add(body)
        refused = chosen(at, body, "n1", "small", "unknown")
        assert refused == (
            [],
            {"n1": REASONS[Verdict.NO_ROOM]},
            {"small": REASONS[Verdict.TOO_BIG], "unknown": REASONS[Verdict.NO_CARDS]},
        ), "preemption must know where it may help"
        assert at.line.place_of("uid-a") == 1
        at.api.add(pod_json("b", "8Gi"))
        assert chosen(at, pod_json("b", "8Gi"), "n1", "n2", "small") == (["n2"], {}, {})
        assert at.line.place_of("uid-b") is None

    run(main)


def test_choose_leaves_pods_without_gpu_to_kube_scheduler():
    at = cluster(n1=(16,), n2=(16,))
    assert chosen(at, pod_json("a", None, cpu="1"), "n1", "n2", "other") == (["n1", "n2", "other"], {}, {})


def test_evictions_are_exactly_those_that_open_a_card():
    """By node totals two of 4Gi would do; only the right two make 8Gi on one card."""

    async def main():
        at = cluster(n1=(8, 8))
        for name in ("a", "b", "c", "d"):
            await runs(at, name, "4Gi")
        cards = {name: at.cluster.charged(f"uid-{name}")[1].slots[0].shares[0].uuid for name in "abcd"}
        found = preempted(at, pod_json("high", "8Gi", priority=10), n1=("a", "d"))
        assert len(found["n1"]) == 2
        assert len({cards[name] for name in found["n1"]}) == 1

    run(main)


def test_only_as_many_as_are_needed():
    async def main():
        at = cluster(n1=(16,))
        for i in range(8):
            await runs(at, f"p{i}", "2Gi", priority=i)
        assert preempted(at, pod_json("high", "4Gi", priority=10), n1=tuple(f"p{i}" for i in range(8))) == {
            "n1": {"p0", "p1"}
        }

    run(main)


def test_nobody_of_equal_or_higher_priority_is_evicted():
    async def main():
        at = cluster(n1=(16,), n2=(16,))
        await runs(at, "equal", "16Gi", priority=10)
        await runs(at, "low", "16Gi", "n2", priority=9)
        high = pod_json("high", "4Gi", priority=10)
        assert preempted(at, high, n1=("equal",), n2=("low",)) == {"n2": {"low"}}
        assert preempted(at, pod_json("higher", "4Gi", priority=11), n1=("equal",)) == {"n1": {"equal"}}

    run(main)


def test_nodes_where_nothing_helps_are_left_out():
    async def main():
        at = cluster(small=(4, 4, 4, 4), n1=(16,))
        await runs(at, "a", "4Gi", "small")
        await runs(at, "b", "10Gi")
        found = preempted(at, pod_json("high", "8Gi", priority=10), small=("a",), n1=("b",), gone=("x",))
        assert found == {"n1": {"b"}}

    run(main)


def test_a_node_where_room_comes_by_itself_is_left_out():
    async def main():
        at = cluster(n1=(16,))
        await runs(at, "leaving", "10Gi")
        await runs(at, "stays", "4Gi")
        at.api.change("leaving", lambda it: it["metadata"].update(deletionTimestamp="2030-01-01T00:00:00Z"))
        assert preempted(at, pod_json("high", "8Gi", priority=10), n1=("stays",)) == {}
        assert preempted(at, pod_json("huge", "16Gi", priority=10), n1=("stays",)) == {"n1": {"stays"}}

    run(main)


def test_victims_without_gpu_were_chosen_for_other_reasons_and_stay():
    async def main():
        at = cluster(n1=(16,))
        at.api.add(pod_json("cpu", None, node="n1", cpu="60"))
        await runs(at, "gpu", "16Gi")
        high = pod_json("high", "4Gi", priority=10, cpu="32")
        assert preempted(at, high, n1=("cpu", "gpu")) == {"n1": {"cpu", "gpu"}}
        assert preempted(at, high, n1=("cpu",)) == {"n1": {"cpu", "gpu"}}

    run(main)


def test_victims_with_gpu_stay_only_if_something_else_needs_it():
    async def main():
        at = cluster(n1=(16, 16))
        await runs(at, "a", "4Gi", cpu="30", priority=1)
        await runs(at, "b", "4Gi", cpu="30")
        high = pod_json("high", "8Gi", priority=10, cpu="32")
        found = preempted(at, high, n1=("a", "b"))
        assert found == {"n1": {"a"}}, "there is room on the cards: one of them is enough for the CPU"
        assert preempted(at, pod_json("high", "8Gi", priority=10, cpu="1"), n1=("a", "b")) == {}

    run(main)


def test_a_pod_that_waits_in_front_is_not_robbed_by_preemption():
    """Its held card is closed to the other, so nothing on it is evicted for that."""

    async def main():
        at = cluster(n1=(16,))
        await runs(at, "x", "16Gi")
        at.cluster.hold("uid-other", "n1", ["GPU-n1-0"])
        assert preempted(at, pod_json("high", "4Gi", priority=10), n1=("x",)) == {}

    run(main)


def test_what_is_held_for_those_behind_gives_way_to_preemption():
    async def main():
        at = cluster(n1=(16,))
        await runs(at, "x", "16Gi")
        filtered(at, pod_json("low", "16Gi"), "n1")
        at.cluster.hold("uid-low", "n1", ["GPU-n1-0"])
        assert preempted(at, pod_json("high", "4Gi", priority=10), n1=("x",)) == {"n1": {"x"}}

    run(main)


def test_a_pod_that_is_only_being_bound_is_no_victim():
    """kube-scheduler does not find it on the node, and would give up evicting at all."""

    async def main():
        at = cluster(n1=(16, 16))
        await runs(at, "low", "12Gi")
        at.api.fates["bind"] = [hangs(asyncio.Event())]
        at.api.add(pod_json("binding", "12Gi"))
        asked = asyncio.create_task(at.bind("binding"))
        await asyncio.sleep(1)
        assert set(at.charged()) == {"uid-low", "uid-binding"}
        urgent = pod_json("urgent", "14Gi", priority=10)
        assert preempted(at, urgent, n1=("low",)) == {"n1": {"low"}}
        both = pod_json("both", "28Gi", priority=10, annotations={names.gpu_count("main"): "2"})
        assert preempted(at, both, n1=("low",)) == {}
        asked.cancel()

    run(main)


def test_what_a_pod_in_line_gets_is_worked_out_once_for_all_nodes(monkeypatch):
    async def main():
        at = cluster(**{f"n{i}": (16,) for i in range(20)})
        for i in range(20):
            await runs(at, f"low{i}", "12Gi", f"n{i}")
        asked, behind = [], at.line.behind
        monkeypatch.setattr(at.line, "behind", lambda pod: asked.append(pod) or behind(pod))
        urgent = pod_json("urgent", "14Gi", priority=10)
        proposed = {f"n{i}": (f"low{i}",) for i in range(20)}
        assert len(preempted(at, urgent, **proposed)) == 20
        assert len(asked) == 1

    run(main)


def test_pods_of_many_containers_do_not_keep_the_server_from_everything_else(monkeypatch):
    """The work is limited for all nodes together; each set of victims still opens the room, without a spare one."""

    async def main():
        at = cluster(**{f"n{i}": (80,) * 8 for i in range(24)})
        for i in range(24):
            for j in range(16):
                await runs(at, f"low{i}-{j}", "40Gi", f"n{i}")
        urgent = pod_json("urgent", "15Gi", priority=10)
        (container,) = urgent["spec"]["containers"]
        urgent["spec"]["containers"] = [{**container, "name": f"c{i}"} for i in range(32)]
        placed, put_all = [], victims.put_all
        monkeypatch.setattr(victims, "put_all", lambda *args: placed.append(len(args[1])) or put_all(*args))
        found = preempted(at, urgent, **{f"n{i}": (f"low{i}-0",) for i in range(24)})
        assert sum(placed) <= 200_000
        assert len(found) == 24
        assert {len(uids) for uids in found.values()} == {13}, (
            "6 empty GPUs have room for 30, half of one for 2"
        )

    run(main)
