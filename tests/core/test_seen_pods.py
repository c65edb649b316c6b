"""What was seen is bounded, whatever comes, and what is written is read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core import seen_pods
from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.seen_pods import LONGEST_MODEL, MOST_KINDS, MOST_PODS, SeenPods

GI = 2**30


def test_what_is_seen_once_is_forgotten_before_what_is_seen_often():
    seen = SeenPods()
    for _ in range(5):
        seen.add((Demand(whole=1),), 4000)
    for cpu in range(3 * MOST_KINDS):
        seen.add((), cpu)
        assert len(seen.counts) <= MOST_KINDS
    assert seen.counts[seen_pods.PodKind(Demand(whole=1), 4000)] == 5
    assert len(seen.counts) > MOST_KINDS // 2, "many are still known"
    assert seen.total == sum(seen.counts.values())


def test_of_kinds_that_were_seen_as_often_those_with_gpus_stay():
    seen = SeenPods()
    for cpu in range(MOST_KINDS * 2 // 5):
        seen.add((), cpu)
        seen.add((Demand(whole=1),), cpu)
    for cpu in range(MOST_KINDS * 2 // 5):
        seen.add((Demand(Memory(GI)),), cpu)
    shapes = [kind.demand and kind.demand.memory is None for kind in seen.counts]
    whole, part = shapes.count(True), shapes.count(False)
    assert shapes.count(None) < min(whole, part)
    assert 0.8 < whole / part < 1.25, "neither is favoured"


def test_what_was_seen_long_ago_counts_less():
    seen = SeenPods.of([Demand(whole=1)] * MOST_PODS)
    seen.add((Demand(Memory(GI)),))
    assert seen.counts[seen_pods.PodKind(Demand(whole=1))] == MOST_PODS // 2
    assert seen.total <= MOST_PODS


def test_names_that_no_model_can_have_are_not_kept():
    seen = SeenPods.of([Demand(whole=1, models=("A100", "x" * (LONGEST_MODEL + 1)))])
    assert [kind.demand.models for kind in seen.counts] == [("A100",)]


demands = st.one_of(
    st.builds(Demand, st.builds(Memory, st.integers(GI, 80 * GI)), gpus=st.integers(1, 8)),
    st.builds(Demand, whole=st.integers(1, 8), models=st.sampled_from([(), ("A100",), ("A100", "H100")])),
    st.builds(Demand, st.builds(Memory, percent=st.fractions(1, 100))),
)
pods = st.lists(st.tuples(st.lists(demands, max_size=2), st.integers(0, 64000), st.integers(0, 2**40)))


@given(pods)
def test_what_is_written_is_read_again(pods):
    seen = SeenPods()
    for asked, cpu, memory in pods:
        seen.add(asked, cpu, memory)
    assert SeenPods.from_json(seen.to_json()) == seen


@pytest.mark.parametrize("count", [-1, True, 1.5, "1", None])
def test_a_count_that_is_none_is_not_read(count):
    with pytest.raises(BadInput, match="not a whole number"):
        SeenPods.from_json([{"count": count}])


def test_more_than_can_be_kept_is_read_and_bounded():
    read = SeenPods.from_json([{"count": 10**30, "cpu": 1}, {"count": 1, "cpu": 2}])
    assert 0 < read.total <= MOST_PODS
