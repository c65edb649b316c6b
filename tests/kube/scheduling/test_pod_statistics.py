"""Every pod counts once, whenever servers start and whatever the one before had written."""

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.demand import Demand, Memory
from cotenant.core.seen_pods import pod_kinds
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.pod_statistics import EndedPods, PodStatistics

GI = 2**30
KINDS = {
    "part": pod_kinds((Demand(Memory(4 * GI)),), 1000, GI),
    "two": pod_kinds((Demand(whole=1), Demand(Memory(GI))), 8000, 4 * GI),
    "plain": pod_kinds((), 500, GI),
}


def started(ended: EndedPods, running: dict[str, str]) -> PodStatistics:
    statistics = PodStatistics(ClusterLedger().learned)
    statistics.begin(ended, {uid: KINDS[kind] for uid, kind in running.items()})
    return statistics


def counts(statistics: PodStatistics) -> dict:
    return statistics._learned.seen.counts


def expected(*kinds: str) -> dict:
    made: dict = {}
    for name in kinds:
        for kind in KINDS[name]:
            made[kind] = made.get(kind, 0) + 1
    return made


def test_a_pod_that_is_told_again_counts_once():
    statistics = started(EndedPods(), {})
    for _ in range(3):
        statistics.start("a", KINDS["part"])
    assert counts(statistics) == expected("part")
    statistics.end("a")
    statistics.end("a")
    statistics.end("unknown")
    assert counts(statistics) == expected("part"), "it was typical, and is"
    assert (statistics.pods, statistics.ended.pods) == (1, 1)


def test_starting_again_and_again_changes_nothing():
    statistics = started(EndedPods(), {"a": "part", "b": "two"})
    statistics.start("c", KINDS["plain"])
    statistics.end("a")
    before = dict(counts(statistics))
    for _ in range(3):
        statistics = started(deepcopy(statistics.ended), {"b": "two", "c": "plain"})
        assert counts(statistics) == before
        assert statistics.pods == 3


steps = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 9), st.sampled_from(sorted(KINDS))),
        st.tuples(st.just("end"), st.integers(0, 9), st.just("")),
        st.tuples(st.just("write"), st.just(0), st.just("")),
        st.tuples(st.just("kill"), st.just(0), st.just("")),
    ),
    max_size=60,
)


@given(steps)
def test_whenever_it_is_killed_no_pod_counts_twice_and_none_that_was_written_is_lost(steps):
    kept, here, ever, lasting = EndedPods(), {}, {}, set()
    statistics = started(kept, here)
    for number, (what, at, kind) in enumerate(steps):
        uid = next((uid for uid in here if uid.startswith(f"{at}-")), None)
        if what == "start" and uid is None:
            here[f"{at}-{number}"] = ever[f"{at}-{number}"] = kind
            statistics.start(f"{at}-{number}", KINDS[kind])
        elif what == "end" and uid is not None:
            del here[uid]
            statistics.end(uid)
        elif what == "write":
            kept, lasting = deepcopy(statistics.ended), {*ever} - {*here}
        elif what == "kill":
            statistics = started(deepcopy(kept), here)
            ever = {uid: kind for uid, kind in ever.items() if uid in here or uid in lasting}
        assert counts(statistics) == expected(*ever.values())
        assert statistics.pods == len(ever)
