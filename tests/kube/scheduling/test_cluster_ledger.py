"""The cluster's ledger: what is charged, stays charged and comes back, and the matrix in step with all of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kube.scheduling.plain import GI, gib, granted, ledger_of_cluster, slots

from cotenant.core.demand import Demand
from cotenant.core.errors import DuplicateCharge, NoRoom
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.learning import NodeShape, Supply
from cotenant.core.ledger import Ledger
from cotenant.core.loss import PLENTY, Requests, Spare
from cotenant.dialects.pod_grant import PodGrant
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.placing import place_pod


def gained(cluster: ClusterLedger) -> list[str]:
    return [cluster.name(row) for row in cluster.take_gained().tolist()]


def test_a_pod_is_charged_with_all_its_slots_or_with_none() -> None:
    cluster = ledger_of_cluster([(16, 16), (4, 16)])
    with pytest.raises(NoRoom):
        cluster.charge("n0", granted("p", Share("n0-0", 8 * GI), Share("n0-1", 8 * GI)))
    assert cluster.charged("p") is None
    assert cluster.ledger("n0").free("n0-0") == 16 * GI
    cluster.charge("n0", granted("p", Share("n0-0", 8 * GI), Share("n0-0", 8 * GI)))
    assert cluster.ledger("n0").free("n0-0") == 0


def test_a_pod_is_charged_once_wherever_it_is() -> None:
    cluster = ledger_of_cluster([(16, 16)], [(16, 16)])
    cluster.charge("n0", granted("p", Share("n0-0", GI)))
    for node in ("n0", "n1"):
        with pytest.raises(DuplicateCharge):
            cluster.charge(node, granted("p", Share(f"{node}-0", GI)))
    assert cluster.charged("p") == ("n0", granted("p", Share("n0-0", GI)))


def test_nothing_is_charged_on_a_node_that_is_not_there() -> None:
    cluster = ledger_of_cluster([(16, 16)])
    cluster.drop_node("n0")
    with pytest.raises(NoRoom):
        cluster.charge("n0", granted("p", Share("n0-0", GI)))
    assert cluster.charged("p") is None


def test_releasing_twice_does_no_harm() -> None:
    cluster = ledger_of_cluster([(16, 16)])
    cluster.charge("n0", granted("p", Share("n0-0", GI)))
    assert cluster.release("p") == "n0"
    assert cluster.release("p") is None
    assert cluster.pods_on("n0") == ()


def test_a_pod_that_lives_is_taken_fit_or_not_and_again_changes_nothing() -> None:
    cluster = ledger_of_cluster([(2, 16)])
    for _ in range(2):
        cluster.load("n0", granted("p", Share("n0-0", 8 * GI)))
    assert cluster.ledger("n0").free("n0-0") == 0
    assert cluster.pods_on("n0") == ("on-n0-0", "p")
    assert cluster.release("p") == "n0"
    assert cluster.ledger("n0").free("n0-0") == 2 * GI


def test_a_pod_that_lives_elsewhere_than_was_known_is_charged_there_and_only_there() -> None:
    cluster = ledger_of_cluster([(16, 16)], [(16, 16)])
    cluster.load("n0", granted("p", Share("n0-0", 8 * GI)))
    cluster.load("n1", granted("p", Share("n1-0", 4 * GI)))
    assert cluster.ledger("n0").free("n0-0") == 16 * GI
    assert cluster.ledger("n1").free("n1-0") == 12 * GI
    assert cluster.charged("p") == ("n1", granted("p", Share("n1-0", 4 * GI)))


def test_what_is_charged_on_a_node_outlives_its_going_and_its_cards() -> None:
    cluster = ClusterLedger()
    gpu = GPU("a", 0, "T4", 16 * GI)
    cluster.load("n", granted("early", Share("a", 4 * GI)))
    assert cluster.pods_on("n") == ("early",)
    cluster.set_node("n", [gpu], {})
    assert cluster.ledger("n").free("a") == 12 * GI
    cluster.drop_node("n")
    cluster.load("n", granted("meanwhile", Share("a", 2 * GI)))
    assert cluster.ledger("n").gpus == ()
    cluster.set_node("n", [GPU("b", 0, "T4", 16 * GI)], {})
    cluster.set_node("n", [GPU("b", 0, "T4", 16 * GI), gpu], {"a": GI})
    assert cluster.ledger("n").free("a") == 9 * GI


def test_a_node_keeps_its_row_and_leaves_it_to_the_next_one() -> None:
    cluster = ledger_of_cluster([(1, 1)], [(1, 1)], [(1, 1)])
    assert cluster.rows(["n2", "n1", "unknown"]).tolist() == [2, 1, -1]
    cluster.drop_node("n1")
    assert cluster.rows(["n2", "n1"]).tolist() == [2, -1]
    assert cluster.name(1) == ""
    cluster.set_node("new", [GPU("new-0", 0, "T4", 16 * GI)], {})
    assert cluster.rows(["n2", "new", "n1"]).tolist() == [2, 1, -1]
    assert cluster.name(1) == "new"
    cluster.set_node("n1", [GPU("n1-0", 0, "T4", 16 * GI)], {})
    assert cluster.rows(["n2", "new", "n1"]).tolist() == [2, 1, 3]


def test_nodes_that_come_and_go_for_ever_do_not_make_the_matrix_grow() -> None:
    """An autoscaler gives each a new name."""
    cluster = ledger_of_cluster([(16, 16)], [(16, 16)])
    for number in range(1000):
        name = f"scaled-{number}"
        cluster.set_node(name, [GPU(f"{name}-0", 0, "T4", 16 * GI)], {})
        cluster.charge(name, granted("p", Share(f"{name}-0", GI)))
        cluster.hold("w", name, [f"{name}-0"])
        cluster.release("p")
        cluster.unhold("w")
        cluster.drop_node(name)
    assert cluster.matrix.rows == 3
    assert cluster.matrix.free.shape[1] == 64
    assert not cluster.matrix.held.any()


def test_what_is_held_on_a_node_that_is_gone_is_not_held_on_the_one_that_got_its_row() -> None:
    cluster = ledger_of_cluster([(16, 16)])
    cluster.hold("w", "n0", ["n0-0"])
    cluster.drop_node("n0")
    cluster.set_node("new", [GPU("new-0", 0, "T4", 16 * GI)], {})
    assert not cluster.matrix.held.any()
    cluster.unhold("w")
    assert not cluster.matrix.held.any()
    assert gained(cluster) == ["new"]


def test_rows_that_gain_room_are_told_once() -> None:
    cluster = ledger_of_cluster([(8, 16)], [(16, 16)], [(16, 16)])
    cluster.charge("n1", granted("p", Share("n1-0", GI)))
    assert gained(cluster) == []
    cluster.release("p")
    assert gained(cluster) == ["n1"]
    assert gained(cluster) == []
    cluster.set_node("n0", [GPU("n0-0", 0, "T4", 16 * GI)], {"n0-0": GI})
    assert gained(cluster) == []
    cluster.set_node("n0", [GPU("n0-0", 0, "T4", 16 * GI)], {})
    assert gained(cluster) == ["n0"]
    cluster.set_node("n0", [GPU("n0-0", 0, "T4", 16 * GI, healthy=False)], {})
    assert gained(cluster) == []
    cluster.set_node("n0", [GPU("n0-0", 0, "T4", 16 * GI)], {})
    cluster.hold("w", "n2", ["n2-0"])
    assert gained(cluster) == ["n0"]
    cluster.unhold("w")
    assert gained(cluster) == ["n2"]
    cluster.drop_node("n2")
    cluster.set_node("n2", [GPU("n2-0", 0, "T4", 16 * GI)], {})
    assert gained(cluster) == ["n2"]


def test_a_node_told_again_unchanged_gains_nothing_in_whatever_order_its_cards_come() -> None:
    cluster = ledger_of_cluster([(4, 16), (16, 16)])
    ledger = cluster.ledger("n0")
    cluster.set_node("n0", list(reversed(ledger.gpus)), {})
    assert cluster.ledger("n0") is ledger
    assert gained(cluster) == []


def test_a_hold_is_replaced_not_added_and_waits_for_a_node_to_return() -> None:
    cluster = ledger_of_cluster([(16, 16), (16, 16)], [(16, 16)])
    cluster.hold("w", "n0", ["n0-0", "n0-1"])
    cluster.hold("w", "n1", ["n1-0"])
    assert cluster.holds() == {"w": ("n1", ("n1-0",))}
    assert place_pod(cluster, "n0", "p", slots(Demand(whole=2))) is not None
    assert place_pod(cluster, "n1", "p", slots(gib(1))) is None
    cluster.drop_node("n1")
    cluster.set_node("n1", [GPU("n1-0", 0, "T4", 16 * GI), GPU("n1-9", 9, "T4", 16 * GI)], {})
    assert cluster.matrix.held[:2, 1].tolist() == [1, 0]
    cluster.unhold("w")
    cluster.unhold("w")
    assert not cluster.matrix.held.any()


NODES = ["a", "b", "c"]
CARDS = [f"{node}{at}" for node in NODES for at in range(3)]
PODS = ["p0", "p1", "p2", "p3", "p4"]


@st.composite
def bindings(draw: st.DrawFn) -> tuple[str, PodGrant]:
    """A node, and a grant on its cards or, now and then, on a card of another."""
    node = draw(st.sampled_from(NODES))
    here = st.sampled_from([card for card in CARDS if card.startswith(node)])
    card = here | here | here | st.sampled_from(CARDS)
    part = st.builds(Share, card, st.integers(1, 6), st.none() | st.integers(1, 100))
    whole = st.builds(Share, card, st.sampled_from([8, 12]), st.none(), st.just(True))
    shares = draw(st.lists(part | part | whole, min_size=1, max_size=3))
    return node, granted(draw(st.sampled_from(PODS)), *shares)


class AgainstPlainLedgers(RuleBasedStateMachine):
    """The fleet beside a dict of what is charged, from which a ledger is made anew at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ClusterLedger()
        self.nodes: dict[str, tuple[list[GPU], dict[str, int]]] = {}
        self.charged: dict[str, tuple[str, PodGrant]] = {}
        self.held: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.room: dict[str, dict[str, tuple[int, int, bool, bool]]] = {}

    def plain(self, node: str) -> Ledger:
        gpus, outside = self.nodes.get(node, ([], {}))
        ledger = Ledger(gpus, outside)
        for where, grant in self.charged.values():
            for charge in grant.charges if where == node else ():
                ledger.load(charge)
        return ledger

    @initialize()
    def begin(self) -> None:
        for node in NODES[:2]:
            self.nodes[node] = [GPU(f"{node}{at}", at, "T4", 12) for at in range(3)], {}
            self.cluster.set_node(node, *self.nodes[node])

    @rule(node=st.sampled_from(NODES), data=st.data())
    def set_node(self, node: str, data: st.DataObject) -> None:
        healthy = st.sampled_from([True, True, False])
        order = data.draw(st.permutations([0, 1, 2]))[: data.draw(st.integers(0, 3))]
        gpus = [
            GPU(f"{node}{at}", at, "T4", data.draw(st.sampled_from([8, 12])), data.draw(healthy))
            for at in order
        ]
        outside = data.draw(st.dictionaries(st.sampled_from(CARDS), st.integers(0, 6), max_size=2))
        self.cluster.set_node(node, gpus, outside)
        self.nodes[node] = gpus, outside

    @rule(node=st.sampled_from(NODES))
    def set_again(self, node: str) -> None:
        if node in self.nodes:
            self.cluster.set_node(node, *self.nodes[node])

    @rule(node=st.sampled_from(NODES))
    def drop(self, node: str) -> None:
        self.cluster.drop_node(node)
        self.nodes.pop(node, None)

    @rule(binding=bindings())
    def charge(self, binding: tuple[str, PodGrant]) -> None:
        node, grant = binding
        if grant.uid in self.charged:
            with pytest.raises(DuplicateCharge):
                self.cluster.charge(node, grant)
            return
        plain = self.plain(node)
        try:
            for charge in grant.charges:
                plain.charge(charge)
        except (NoRoom, ValueError) as error:
            with pytest.raises(type(error)):
                self.cluster.charge(node, grant)
        else:
            self.cluster.charge(node, grant)
            self.charged[grant.uid] = node, grant

    @rule(binding=bindings())
    def load(self, binding: tuple[str, PodGrant]) -> None:
        node, grant = binding
        self.cluster.load(node, grant)
        self.charged[grant.uid] = node, grant

    @rule(uid=st.sampled_from(PODS))
    def release(self, uid: str) -> None:
        was = self.charged.pop(uid, None)
        assert self.cluster.release(uid) == (was[0] if was else None)

    @rule(
        uid=st.sampled_from(["w0", "w1"]),
        node=st.sampled_from(NODES),
        uuids=st.sets(st.sampled_from(CARDS), min_size=1),
    )
    def hold(self, uid: str, node: str, uuids: set[str]) -> None:
        self.cluster.hold(uid, node, uuids)
        self.held[uid] = node, tuple(sorted(uuids))

    @rule(uid=st.sampled_from(["w0", "w1"]))
    def unhold(self, uid: str) -> None:
        self.cluster.unhold(uid)
        self.held.pop(uid, None)

    @invariant()
    def all_agree(self) -> None:
        assert self.cluster.pods == self.charged
        assert self.cluster.holds() == self.held
        gained_rows = set(self.cluster.take_gained().tolist())
        for node in NODES:
            plain = self.plain(node)
            assert self.cluster.ledger(node).room() == plain.room()
            on = {uid for uid, (where, _) in self.charged.items() if where == node}
            assert set(self.cluster.pods_on(node)) == on
            row = int(self.cluster.rows([node])[0])
            if row >= 0:
                self.matrix_agrees(row, node, plain)
                self.gain_is_told(row, node, plain, gained_rows)

    def matrix_agrees(self, row: int, node: str, plain: Ledger) -> None:
        matrix = self.cluster.matrix
        rooms = sorted(plain.room(), key=lambda room: room.gpu.index)
        assert matrix.cards[row] == len(rooms)
        for column, room in enumerate(rooms):
            uuid = room.gpu.uuid
            assert matrix.free[column, row] == room.free
            assert matrix.compute[column, row] == room.compute_free
            assert matrix.unused[column, row] == room.unused
            assert matrix.size[column, row] == room.gpu.memory
            holders = [1 for where, uuids in self.held.values() if where == node and uuid in uuids]
            assert matrix.held[column, row] == len(holders)
        for field in (matrix.free, matrix.size, matrix.compute, matrix.unused, matrix.kind, matrix.held):
            assert not np.any(field[len(rooms) :, row])

    def gain_is_told(self, row: int, node: str, plain: Ledger, rows: set[int]) -> None:
        """Whatever a new pod could take that it could not take before."""
        held = {uuid for where, uuids in self.held.values() if where == node for uuid in uuids}
        now = {
            room.gpu.uuid: (room.free, room.compute_free, room.unused, room.gpu.uuid not in held)
            for room in plain.room()
        }
        before = self.room.get(node, {})
        more = any(
            any(new > old for new, old in zip(room, before.get(uuid, (0, 0, False, False)), strict=True))
            and room[3]
            and (room[0] or room[2])
            for uuid, room in now.items()
        )
        assert row in rows or not more
        self.room[node] = now


TestAgainstPlainLedgers = AgainstPlainLedgers.TestCase
TestAgainstPlainLedgers.settings = settings(max_examples=40, stateful_step_count=25)


def test_what_pods_take_beside_gpus_is_counted_with_or_without_gpu_and_before_the_node_is_known() -> None:
    cluster = ClusterLedger()
    cluster.request("early", "n0", Requests(1000, 5))
    cluster.set_node("n0", [GPU("a", 0, "T4", 16 * GI)], {}, Spare(8000, 50, 3))
    assert cluster.spare("n0") == Spare(7000, 45, 2)
    assert cluster.request("late", "n0", Requests(500, 5))
    assert not cluster.request("late", "n0", Requests(500, 5))
    assert not cluster.request("late", "n0", Requests(2000, 5))
    (row,) = cluster.rows(["n0"]).tolist()
    matrix = cluster.matrix
    assert (matrix.cpu[row], matrix.memory[row], matrix.pods[row]) == (5000, 40, 1)
    cluster.set_node("n0", [GPU("a", 0, "T4", 16 * GI)], {}, Spare(9000, 50, 2))
    assert cluster.spare("n0") == Spare(0, 0, 0)  # no place for another pod
    cluster.release("early")
    assert cluster.spare("n0") == Spare(7000, 45, 1)
    assert cluster.request("late", "n1", Requests(2000, 5))
    assert cluster.spare("n0") == Spare(9000, 50, 2)
    cluster.drop_node("n0")
    assert (matrix.cpu[row], matrix.pods[row]) == (PLENTY, PLENTY)


def test_what_is_free_of_each_kind_of_card_is_kept_in_step() -> None:
    cluster = ledger_of_cluster([(16, 16), (4, 24)], [(0, 16)])
    by_size = dict(
        zip((gpu.memory for gpu in cluster.matrix.kinds.gpus), cluster.matrix.free_of_kind[1:], strict=True)
    )
    assert by_size == {16 * GI: 16 * GI, 24 * GI: 4 * GI}
    cluster.release("on-n1-0")
    cluster.drop_node("n0")
    assert cluster.matrix.free_of_kind[1:] == [16 * GI, 0]


def test_the_supply_is_that_of_the_nodes_that_exist() -> None:
    cluster = ledger_of_cluster([(16, 16), (4, 24)], [(0, 16)])
    cluster.set_node("n1", [GPU("n1-0", 0, "T4", 16 * GI)], {}, Spare(4000, 7, 1))
    cluster.drop_node("n0")
    shape = NodeShape((("T4", 16 * GI),), 4000, 7)
    assert cluster.learned.supply == Supply({("T4", 16 * GI): 1}, 4000, 7, 16 * GI, 16 * GI, {shape: 1})


def test_what_nodes_gain_beside_their_gpus_is_learned_at_once() -> None:
    cluster = ClusterLedger()
    gpus = [GPU("n-0", 0, "T4", 16 * GI)]
    cluster.set_node("n", gpus, {}, Spare(4000, 64 * GI))
    before = cluster.learned.loss
    cluster.set_node("n", gpus, {}, Spare(4100, 64 * GI))
    assert cluster.learned.loss is before
    cluster.set_node("n", gpus, {}, Spare(64000, 64 * GI))
    assert cluster.learned.loss.beside.cpu > before.beside.cpu
