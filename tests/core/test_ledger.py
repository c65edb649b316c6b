"""The ledger: its rules one by one, then all of them against a slow model that only keeps a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from cotenant.core.errors import CotenantError, DuplicateCharge, NoRoom, UnknownGrant
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger

GI = 2**30
A, B = GPU("a", 0, "A100", 80 * GI), GPU("b", 1, "T4", 16 * GI)


def grant(id: str, uuid: str, gib: int, compute: int | None = None, whole: bool = False) -> Grant:
    return Grant(id, (Share(uuid, gib * GI, compute, whole),))


def test_a_charge_takes_room_and_its_release_gives_it_back() -> None:
    ledger = Ledger([A, B])
    ledger.charge(grant("x", "a", 30))
    assert (ledger.free("a"), ledger.granted("a"), ledger.free("b")) == (50 * GI, 30 * GI, 16 * GI)
    assert ledger.release("x") is True
    assert ledger.release("x") is False
    assert ledger.free("a") == 80 * GI


def test_a_card_can_be_filled_to_the_last_byte_and_not_beyond() -> None:
    ledger = Ledger([B])
    ledger.charge(Grant("x", (Share("b", 16 * GI - 1),)))
    with pytest.raises(NoRoom, match="2 asked, 1 free on GPU 1"):
        ledger.charge(Grant("y", (Share("b", 2),)))
    ledger.charge(Grant("y", (Share("b", 1),)))
    assert ledger.free("b") == 0


def test_the_same_id_cannot_be_charged_twice() -> None:
    ledger = Ledger([A], grants=[grant("x", "a", 1)])
    for take in (ledger.charge, ledger.load):
        with pytest.raises(DuplicateCharge):
            take(grant("x", "a", 1))
    assert ledger.granted("a") == GI


def test_a_charge_over_several_cards_is_taken_as_a_whole_or_not_at_all() -> None:
    ledger = Ledger([A, B])
    with pytest.raises(NoRoom):
        ledger.charge(Grant("x", (Share("a", GI), Share("b", 17 * GI))))
    assert ledger.grants == {}
    assert ledger.free("a") == 80 * GI


def test_a_whole_card_is_shared_with_nobody() -> None:
    ledger = Ledger([A, B], {"b": 1})
    ledger.charge(grant("x", "a", 80, whole=True))
    assert ledger.is_whole("a")
    assert (ledger.free("a"), ledger.compute_free("a")) == (0, 0)
    for share in (Share("a", 1), Share("a", 80 * GI, whole=True)):
        with pytest.raises(NoRoom, match="GPU 0"):
            ledger.charge(Grant("y", (share,)))
    with pytest.raises(NoRoom, match="GPU 1 is in use"):
        ledger.charge(grant("y", "b", 16, whole=True))
    ledger.release("x")
    ledger.charge(grant("y", "a", 1))
    with pytest.raises(NoRoom, match="in use"):
        ledger.charge(grant("z", "a", 80, whole=True))


def test_a_whole_share_that_is_not_all_of_the_card_is_a_bug() -> None:
    with pytest.raises(ValueError, match="whole GPU 0"):
        Ledger([A]).charge(grant("x", "a", 79, whole=True))


def test_compute_of_a_card_never_passes_100_percent() -> None:
    ledger = Ledger([A])
    ledger.charge(grant("x", "a", 1, 70))
    with pytest.raises(NoRoom, match="40% of the compute asked, 30% free on GPU 0"):
        ledger.charge(grant("y", "a", 1, 40))
    with pytest.raises(NoRoom, match="31% of the compute asked, 30% free"):
        ledger.charge(grant("y", "a", 1, 31))
    ledger.charge(grant("y", "a", 1, 30))
    ledger.charge(grant("z", "a", 1))
    assert ledger.compute_free("a") == 0


def test_memory_held_outside_counts_as_taken() -> None:
    ledger = Ledger([A, B], {"a": 79 * GI, "gone": 5})
    assert ledger.free("a") == GI
    assert ledger.outside("a") == 79 * GI
    with pytest.raises(NoRoom, match="2Gi asked, 1Gi free"):
        ledger.charge(grant("x", "a", 2))
    with pytest.raises(ValueError, match="negative"):
        Ledger([A], {"a": -1})


def test_a_sick_card_takes_nothing_new_but_keeps_what_it_has() -> None:
    ledger = Ledger([replace(A, healthy=False)], grants=[grant("x", "a", 10)])
    assert (ledger.free("a"), ledger.granted("a")) == (0, 10 * GI)
    with pytest.raises(NoRoom, match="sick"):
        ledger.charge(grant("y", "a", 1))
    with pytest.raises(NoRoom, match="sick"):
        ledger.resize("x", [Share("a", 11 * GI)])
    assert ledger.resize("x", [Share("a", 9 * GI)]).memory == 9 * GI
    assert ledger.release("x")


def test_what_is_charged_already_is_loaded_even_if_it_is_too_much() -> None:
    over = [
        grant("x", "b", 12, 80),
        grant("y", "b", 12, 80),
        grant("w", "b", 16, whole=True),
        grant("z", "gone", 4),
    ]
    ledger = Ledger([B], {"b": 99 * GI}, over)
    assert set(ledger.grants) == {"w", "x", "y", "z"}
    assert (ledger.free("b"), ledger.compute_free("b"), ledger.granted("b")) == (0, 0, 40 * GI)
    assert ledger.totals().free == 0
    assert ledger.release("z")
    with pytest.raises(NoRoom):
        ledger.charge(Grant("v", (Share("b", 1),)))


def test_a_card_that_is_not_here_takes_nothing() -> None:
    with pytest.raises(NoRoom, match="there is no GPU gone here"):
        Ledger([A]).charge(grant("x", "gone", 1))


def test_resizing_goes_up_where_there_is_room_and_always_down() -> None:
    ledger = Ledger([B], grants=[grant("x", "b", 4, 20), grant("y", "b", 4)])
    ledger.resize("x", [Share("b", 12 * GI, 100)])
    assert (ledger.free("b"), ledger.compute_free("b")) == (0, 0)
    with pytest.raises(NoRoom, match="13Gi asked, 12Gi free"):
        ledger.resize("x", [Share("b", 13 * GI, 100)])
    assert ledger.grants["x"].memory == 12 * GI
    with pytest.raises(UnknownGrant):
        ledger.resize("nobody", [Share("b", 1)])
    over = Ledger([B], {"b": 99 * GI}, [grant("x", "b", 8, 20)])
    assert over.resize("x", [Share("b", 8 * GI, 90)]).shares[0].compute == 90
    with pytest.raises(NoRoom):
        over.resize("x", [Share("b", 8 * GI + 1)])


def test_resizing_to_and_from_a_whole_card() -> None:
    ledger = Ledger([B], grants=[grant("x", "b", 16, whole=True)])
    ledger.resize("x", [Share("b", 4 * GI, 50)])
    assert ledger.free("b") == 12 * GI
    ledger.resize("x", [Share("b", 16 * GI, whole=True)])
    assert ledger.is_whole("b")
    ledger.resize("x", [Share("b", 4 * GI)])
    ledger.charge(grant("y", "b", 1))
    with pytest.raises(NoRoom, match="in use"):
        ledger.resize("x", [Share("b", 16 * GI, whole=True)])


def test_rooms_come_largest_first_and_add_up() -> None:
    ledger = Ledger([B, A, replace(B, uuid="c", index=2)], {"a": 70 * GI}, [grant("x", "b", 1)])
    assert [row.gpu.uuid for row in ledger.room()] == ["c", "b", "a"]
    largest = ledger.largest_room()
    assert largest is not None
    assert (largest.gpu.uuid, largest.free) == ("c", 16 * GI)
    totals = ledger.totals()
    assert (totals.cards, totals.memory) == (3, 112 * GI)
    assert (totals.granted, totals.outside, totals.free) == (GI, 70 * GI, 41 * GI)
    assert Ledger([]).largest_room() is None


def test_a_copy_goes_its_own_way() -> None:
    ledger = Ledger([A], {"a": GI}, [grant("x", "a", 1)])
    other = ledger.copy()
    other.charge(grant("y", "a", 1))
    other.release("x")
    assert set(ledger.grants) == {"x"}
    assert ledger.free("a") == 78 * GI
    ledger.grants.clear()  # type: ignore[attr-defined]
    assert set(ledger.grants) == {"x"}


SIZES = (8, 16, 30)
shares = st.builds(
    Share,
    uuid=st.sampled_from(["0", "1", "2", "gone"]),
    memory=st.integers(1, 32),
    compute=st.none() | st.integers(1, 100),
)
wholes = st.integers(0, 2).map(lambda at: Share(str(at), SIZES[at], whole=True))
several = st.lists(shares | wholes, min_size=1, max_size=3, unique_by=lambda share: share.uuid).map(tuple)


def refusal_of(action: Callable[[], object]) -> type[CotenantError] | None:
    try:
        action()
    except CotenantError as error:
        return type(error)
    return None


class AgainstTheModel(RuleBasedStateMachine):
    """The model: a list of (id, share); every question is answered by going through it."""

    ids = Bundle("ids")

    @initialize(
        outside=st.lists(st.integers(0, 40), min_size=3, max_size=3),
        healthy=st.lists(st.booleans(), min_size=3, max_size=3),
    )
    def start(self, outside: list[int], healthy: list[bool]) -> None:
        self.gpus = [GPU(str(at), at, "T4", SIZES[at], healthy[at]) for at in range(3)]
        self.outside = {str(at): outside[at] // 2 * (outside[at] > 20) for at in range(3)}
        self.ledger = Ledger(self.gpus, self.outside)
        self.model: list[tuple[str, Share]] = []
        self.fair = True

    def gpu(self, uuid: str) -> GPU | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def allowed(self, id: str, share: Share) -> bool:
        """Whether the share may be put beside what others hold, given what its owner holds there now."""
        old = next((held for owner, held in self.model if owner == id and held.uuid == share.uuid), None)
        others = [held for owner, held in self.model if owner != id and held.uuid == share.uuid]
        memory = 0 if old is None else old.memory
        compute = 0 if old is None else 100 if old.whole else old.compute or 0
        grows = (
            old is None
            or share.memory > memory
            or (share.compute or 0) > compute
            or (share.whole and not old.whole)
        )
        gpu = self.gpu(share.uuid)
        if not grows:
            return True
        if gpu is None or not gpu.healthy:
            return False
        if share.whole:
            return not others and self.outside[share.uuid] == 0
        if any(held.whole for held in others):
            return False
        taken = sum(held.memory for held in others) + self.outside[share.uuid]
        percent = sum(held.compute or 0 for held in others)
        return (share.memory <= memory or taken + share.memory <= gpu.memory) and (
            (share.compute or 0) <= compute or percent + (share.compute or 0) <= 100
        )

    @rule(target=ids, id=st.sampled_from("abcdefgh"), shares=several)
    def charge(self, id: str, shares: tuple[Share, ...]) -> str:
        known = any(owner == id for owner, _ in self.model)
        allowed = all(self.allowed(id, share) for share in shares)
        error = refusal_of(lambda: self.ledger.charge(Grant(id, shares)))
        assert error is (DuplicateCharge if known else None if allowed else NoRoom)
        if error is None:
            self.model += [(id, share) for share in shares]
        return id

    @rule(target=ids, id=st.sampled_from("ijk"), shares=several)
    def load(self, id: str, shares: tuple[Share, ...]) -> str:
        if any(owner == id for owner, _ in self.model):
            with pytest.raises(DuplicateCharge):
                self.ledger.load(Grant(id, shares))
        else:
            self.ledger.load(Grant(id, shares))
            self.model += [(id, share) for share in shares]
            self.fair = False
        return id

    @rule(id=ids, shares=several)
    def resize(self, id: str, shares: tuple[Share, ...]) -> None:
        known = any(owner == id for owner, _ in self.model)
        allowed = all(self.allowed(id, share) for share in shares)
        error = refusal_of(lambda: self.ledger.resize(id, shares))
        assert error is (UnknownGrant if not known else None if allowed else NoRoom)
        if error is None:
            self.model = [held for held in self.model if held[0] != id] + [(id, share) for share in shares]

    @rule(id=consumes(ids))
    def release(self, id: str) -> None:
        known = any(owner == id for owner, _ in self.model)
        assert self.ledger.release(id) is known
        assert self.ledger.release(id) is False
        self.model = [held for held in self.model if held[0] != id]

    @rule()
    def copy(self) -> None:
        self.ledger = self.ledger.copy()

    @invariant()
    def every_figure_is_the_models(self) -> None:
        for gpu in self.gpus:
            held = [share for _, share in self.model if share.uuid == gpu.uuid]
            memory, compute = sum(share.memory for share in held), sum(share.compute or 0 for share in held)
            whole = any(share.whole for share in held)
            closed = whole or not gpu.healthy
            assert self.ledger.granted(gpu.uuid) == memory
            assert self.ledger.is_whole(gpu.uuid) is whole
            assert self.ledger.free(gpu.uuid) == (
                0 if closed else max(0, gpu.memory - memory - self.outside[gpu.uuid])
            )
            assert self.ledger.compute_free(gpu.uuid) == (0 if closed else max(0, 100 - compute))
        assert set(self.ledger.grants) == {owner for owner, _ in self.model}

    @invariant()
    def no_card_is_over_granted_by_charging(self) -> None:
        if not self.fair:
            return
        for gpu in self.gpus:
            held = [share for _, share in self.model if share.uuid == gpu.uuid]
            assert sum(share.memory for share in held) <= gpu.memory
            assert sum(share.compute or 0 for share in held) <= 100
            assert len(held) <= 1 or not any(share.whole for share in held)


AgainstTheModel.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestAgainstTheModel = AgainstTheModel.TestCase
