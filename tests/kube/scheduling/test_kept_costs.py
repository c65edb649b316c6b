"""What nodes cost is kept from pod to pod: whatever happens in between, it is what is measured anew."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from kube.scheduling.plain import GI, gib, granted, slots

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.loss import Requests, Spare
from cotenant.kube.scheduling import row_cache
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.kept_costs import AskingKind, costs_at
from cotenant.kube.scheduling.placing import place_pod
from cotenant.kube.scheduling.row_cache import RowCache

T4, A100 = "T4", "NVIDIA A100-SXM4-80GB"
ASKED = [(gib(1),), (gib(6),), (gib(8, gpus=2),), (Demand(whole=1),), (gib(2), gib(3)), ()]


class Story:
    """Things that happen to a ledger, at random."""

    def __init__(self, seed: int) -> None:
        self.random, self.cluster, self.pods = Random(seed), ClusterLedger(), 0
        for number in range(5):
            self.add(f"n{number}")

    def add(self, name: str) -> None:
        model, size = self.random.choice([(T4, 16), (A100, 80)])
        gpus = [
            GPU(f"{name}-{at}", at, model, size * GI, healthy=self.random.random() < 0.9) for at in range(3)
        ]
        has = Spare(self.random.choice([8000, 64000]), 64 * GI, self.random.choice([2, 110]))
        self.cluster.set_node(name, gpus, {f"{name}-0": self.random.choice([0, GI])}, has)

    def bind(self) -> None:
        cluster, demand = self.cluster, self.random.choice(ASKED[:-1])
        self.pods += 1
        uid, node, asked = f"p{self.pods}", self.random.choice(cluster.nodes), Requests(1000, GI)
        grant = place_pod(cluster, node, uid, slots(*demand), asked)
        if grant is not None:
            cluster.charge(node, grant)
            cluster.request(uid, node, asked)
            cluster.learned.see(demand, 1000, GI)

    def step(self) -> None:
        cluster, random = self.cluster, self.random
        node = random.choice(cluster.nodes)
        chosen = random.random()
        if chosen < 0.5:
            self.bind()
        elif chosen < 0.7 and cluster.pods:
            cluster.release(random.choice(list(cluster.pods)))
        elif chosen < 0.8:
            cluster.hold(f"waits-{random.randrange(3)}", node, [f"{node}-{random.randrange(3)}"])
        elif chosen < 0.85:
            cluster.unhold(f"waits-{random.randrange(3)}")
        elif chosen < 0.9:
            cluster.request(f"plain-{random.randrange(3)}", node, Requests(random.randrange(9000), GI))
        elif chosen < 0.95:
            self.add(node)
        elif len(cluster.nodes) > 3:
            cluster.drop_node(node)
        else:
            self.add(f"n{random.randrange(200)}")

    def check(self) -> None:
        cluster, random = self.cluster, self.random
        rows = cluster.rows(cluster.nodes)
        for demands in random.sample(ASKED, 3):
            reserved = random.choice([frozenset[str](), frozenset({A100})])
            kind = AskingKind(demands, Requests(random.choice([0, 4000]), 0), reserved)
            kept = cluster.costs.about(kind).take(rows)
            anew = costs_at(cluster.matrix, cluster.learned.tables, kind, rows)
            assert kept.tolist() == anew.tolist()


@pytest.mark.parametrize("seed", range(12))
def test_kept_costs_are_those_measured_anew(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "_FEWEST_CHANGES", Random(seed).choice([1, 20, 1000]))
    story = Story(seed)
    for _ in range(120):
        story.step()
        story.check()


def test_a_matrix_that_grows_is_measured_anew() -> None:
    cluster, kind = ClusterLedger(), AskingKind((gib(1),), Requests(), frozenset())
    for number in range(200):
        cluster.set_node(f"n{number}", [GPU(f"n{number}-0", 0, T4, 16 * GI)], {})
        rows = cluster.rows(cluster.nodes)
        kept, anew = cluster.costs.about(kind), costs_at(cluster.matrix, cluster.learned.tables, kind, rows)
        assert kept.take(rows).tolist() == anew.tolist()


def test_only_rows_that_changed_are_asked_about_and_the_oldest_kind_is_forgotten() -> None:
    asked = list[tuple[str, list[int]]]()

    def ask(kind: str, rows: np.ndarray) -> np.ndarray:
        asked.append((kind, rows.tolist()))
        return rows.astype(np.int64)

    cache = RowCache(np.arange(4, dtype=np.int32), ask, 2)
    cache.about("a")
    cache.changed(2)
    cache.about("b")
    cache.about("a")
    cache.about("c")
    cache.about("a")
    cache.about("b")
    everything = [0, 1, 2, 3]
    assert asked == [("a", everything), ("b", everything), ("a", [2]), ("c", everything), ("b", everything)]


def test_a_grant_of_another_node_changes_nothing_here() -> None:
    cluster = ClusterLedger()
    for name in ("a", "b"):
        cluster.set_node(name, [GPU(f"{name}-0", 0, T4, 16 * GI)], {})
    kind = AskingKind((gib(1),), Requests(), frozenset())
    before = cluster.costs.about(kind).tolist()
    cluster.charge("a", granted("x", Share("a-0", 4 * GI)))
    after = cluster.costs.about(kind).tolist()
    row = int(cluster.rows(["b"])[0])
    assert before[row] == after[row]
    assert before != after
