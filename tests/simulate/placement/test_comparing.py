"""Replays: who comes, that the same comes to all that is compared, and what is counted."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from math import inf
from xml.etree import ElementTree as ET

import pytest

from cotenant.core.demand import PLACEMENTS, Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.loss import Spare
from cotenant.kube.scheduling.stranded import Cause
from cotenant.simulate.placement import plot
from cotenant.simulate.placement.arriving import Coming, schedule
from cotenant.simulate.placement.comparing import Question, Row, Variant, compare, percent, to_json
from cotenant.simulate.placement.refused import Lack
from cotenant.simulate.placement.workload import RecordedPod, Recording, SimulatedNode, SimulatedPod

GI = 2**30
SIZES = {"V100": 16, "A10": 24, "A100-40GB": 40, "A100-80GB": 80}


def node(name: str, model: str, cards: int = 4) -> SimulatedNode:
    gpus = tuple(GPU(f"{name}-{at}", at, model, SIZES[model] * GI) for at in range(cards))
    return SimulatedNode(name, gpus, Spare(64_000, 512 * GI, 110))


def part(size: int, cpu: int = 2000, **others: float | str) -> RecordedPod:
    return RecordedPod(SimulatedPod((Demand(Memory(bytes=size * GI)),), cpu, 2 * GI), **others)  # type: ignore[arg-type]


NODES = tuple(node(f"{model}-{at}", model) for model in SIZES for at in range(3))
PODS = (
    *(part(size) for size in (2, 4, 4, 6, 10, 12, 20, 30)),
    RecordedPod(SimulatedPod((Demand(whole=2),), 8000, GI)),
    RecordedPod(SimulatedPod((Demand(whole=1, models=("A100",)),), 4000, GI)),
    RecordedPod(SimulatedPod((), 4000, GI)),
)
MIXED = Recording(NODES, PODS)


def ask(recording: Recording = MIXED, coming: Coming | None = None, **others: object) -> list[Row]:
    base = Variant("", recording.nodes, tuple(each.pod for each in recording.pods))
    chosen = {"variants": [base], "policies": ["frag"], "seeds": [1], **others}
    return compare(Question(recording, coming=coming or Coming(), **chosen))  # type: ignore[arg-type]


def test_pods_come_until_they_ask_for_the_load_and_all_is_accounted_for() -> None:
    for row in ask(policies=PLACEMENTS):
        (run,) = row.runs
        assert 1.3 * run.room <= run.asked < 1.3 * run.room + 160 * GI
        last = run.timeline[-1]
        assert last.allocated + last.free.free == run.room == sum(each.bytes for each in NODES)
        assert 0 <= row.stranded <= 100 - row.allocated
        assert row.stranded == pytest.approx(sum(row.stranded_by(cause) for cause in Cause))
        assert row.refused == pytest.approx(sum(row.refused_by(reason) for reason in Lack))
        assert run.refused_pods == sum(count for count, _ in run.lacks.values()) > 0
        assert sum(each.asked for each in run.timeline) == run.asked
        assert sum(each.refused for each in run.timeline) == run.refused


def test_the_same_seed_gives_the_same() -> None:
    first = to_json(ask())
    assert first == to_json(ask())
    assert first != to_json(ask(seeds=[2]))


def test_with_the_policy_for_all_pods_the_order_of_nodes_does_not_matter() -> None:
    mixed = list(NODES)
    random.Random(3).shuffle(mixed)
    one = ask(plain_by_policy=True)
    other = ask(replace(MIXED, nodes=tuple(mixed)), plain_by_policy=True)
    assert to_json(one) == to_json(other)


def test_what_is_added_gets_the_same_pods_and_blocks_fewer() -> None:
    base = Variant("", NODES, tuple(each.pod for each in PODS))
    more = Variant("+8xA100-80GB", (*NODES, node("new", "A100-80GB", 8)), base.pods)
    before, after = ask(variants=[base, more])
    assert before.runs[0].asked == after.runs[0].asked
    assert after.runs[0].room == before.runs[0].room + 8 * 80 * GI
    assert after.refused < before.refused
    assert (before.name, after.name) == ("frag", "frag +8xA100-80GB")


def test_smaller_sizes_block_fewer_pods() -> None:
    halves = [replace(each.pod, demands=tuple(_half(demand) for demand in each.pod.demands)) for each in PODS]
    base = Variant("", NODES, tuple(each.pod for each in PODS))
    before, after = ask(variants=[base, Variant("advised sizes", NODES, tuple(halves))])
    assert after.runs[0].asked < before.runs[0].asked
    assert after.runs[0].refused_pods < before.runs[0].refused_pods


def _half(demand: Demand) -> Demand:
    memory = demand.memory
    return demand if memory is None else replace(demand, memory=Memory(bytes=(memory.bytes or 0) // 2))


def test_seeds_are_averaged() -> None:
    both, (one,), (two,) = ask(seeds=[1, 2]), ask(seeds=[1]), ask(seeds=[2])
    assert both[0].allocated == pytest.approx((one.allocated + two.allocated) / 2)
    assert [each["seed"] for each in to_json(both)[0]["runs"]] == [1, 2]


def test_with_departures_the_first_half_fills_the_cluster_and_the_means_are_of_the_rest() -> None:
    (row,) = ask(coming=Coming(departures=True, count=2000))
    (run,) = row.runs
    assert run.pods == 1000
    steady = [each for each in run.timeline if each.pods > 1000]
    assert row.allocated == pytest.approx(
        percent(sum(each.allocated for each in steady) / len(steady), run.room)
    )
    assert 70 < row.allocated < 100, "about as much is asked for as there is"


def test_recorded_arrivals_and_departures_are_replayed_by_their_times() -> None:
    pods = (
        part(80, created=5.0, ended=9.0),
        part(80, created=1.0, ended=4.0),
        part(80, created=2.0, ended=8.0),
        part(80, created=8.0),
    )
    recording = Recording((node("a", "A100-80GB", 1),), pods)
    (row,) = ask(recording, Coming(recorded=True, departures=True))
    # 1: placed until 4; 2: refused; 5: placed until 9; 8: refused.
    assert row.runs[0].refused_pods == 2
    (row,) = ask(recording, Coming(recorded=True))
    assert row.runs[0].refused_pods == 3, "nobody leaves"
    with pytest.raises(BadInput, match="no pod has a deletion_time"):
        schedule(Recording(NODES, (part(4, created=1.0),)), [4 * GI], GI, Coming(True, departures=True), 1)
    with pytest.raises(BadInput, match="times are missing: add the columns creation_time and deletion_time"):
        schedule(MIXED, [1] * len(PODS), GI, Coming(recorded=True, departures=True), 1)
    with pytest.raises(BadInput, match="1 of 2 have no creation_time"):
        schedule(Recording(NODES, (part(4), part(4, created=1.0))), [1, 1], GI, Coming(recorded=True), 1)


RUNNING = Recording(
    (node("a", "A100-80GB", 2),),
    (
        replace(part(60), uid="x", node="a", shares=(Share("a-0", 60 * GI),)),
        replace(part(30), uid="y", node="a", shares=(Share("a-1", 30 * GI),)),
        part(40),
    ),
)


def test_what_runs_stays_where_it_is_if_it_is_kept() -> None:
    (row,) = ask(RUNNING, Coming(keep=True, count=1))
    assert row.runs[0].timeline[0].allocated == 130 * GI
    (anew,) = ask(RUNNING, Coming(count=1, recorded=True))
    assert anew.runs[0].timeline[0].allocated == 60 * GI


def test_those_that_wait_come_first_then_others_like_all_that_are_there() -> None:
    sizes = [60 * GI, 30 * GI, 40 * GI]
    coming = schedule(RUNNING, sizes, 160 * GI, Coming(keep=True, count=300), 1)
    assert (coming.pods[0], coming.kept) == (2, {0: inf, 1: inf})
    assert set(Counter(coming.pods)) == {0, 1, 2}
    new = schedule(replace(RUNNING, like_running=False), sizes, 160 * GI, Coming(keep=True, count=300), 1)
    assert set(new.pods) == {2}
    full = schedule(RUNNING, sizes, 160 * GI, Coming(keep=True, load=1.3), 1)
    assert sum(sizes[at] for at in full.pods) >= 1.3 * 160 * GI - 90 * GI
    leaving = schedule(RUNNING, sizes, 160 * GI, Coming(keep=True, departures=True), 1)
    assert all(0 < each < inf for each in leaving.kept.values())
    with pytest.raises(BadInput, match="load: what runs asks for 50% of the room already"):
        schedule(replace(RUNNING, pods=RUNNING.pods[:2]), sizes[:2], 160 * GI, Coming(keep=True, load=0.5), 1)


def test_too_many_pods_are_refused_before_they_are_drawn() -> None:
    with pytest.raises(BadInput, match=r"count: about .* pods would come"):
        schedule(MIXED, [1] * len(PODS), 10**9, Coming(), 1)


def test_progress_goes_from_nothing_to_all() -> None:
    told = list[float]()
    base = Variant("", NODES, tuple(each.pod for each in PODS))
    question = Question(MIXED, [base], ["frag", "spread"], [1], Coming(count=50))
    compare(question, lambda done, _: told.append(done))
    assert told == sorted(told)
    assert (told[0] < 0.1, told[-1]) == (True, 1.0)


def test_plots_show_every_row_within_the_picture() -> None:
    rows = ask(policies=["frag", "spread"])
    lines = plot.text(rows, 60)
    assert [line for line in lines if not line.startswith(" ")] == ["frag", "spread"]
    assert max(map(len, lines)) <= 60
    assert all(line.isascii() for line in plot.text(rows, 60, unicode=False))
    picture = ET.fromstring(plot.svg(rows, "a <title>"))
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    points = [each.get("points", "") for each in picture.iter("{http://www.w3.org/2000/svg}polygon")]
    assert len(points) > 2 * len(rows)
    for each in " ".join(points).split():
        x, y = map(float, each.split(","))
        assert 0 <= x <= width
        assert 0 <= y <= height
