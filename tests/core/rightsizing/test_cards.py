"""How many GPUs hold what is advised, by the ledger and its placement."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.gpu import GPU
from cotenant.core.rightsizing.cards import Asked, Filled, fill

GIB = 1 << 30


def machines(*sizes: int, per_machine: int = 8) -> list[tuple[GPU, ...]]:
    gpus = [GPU(f"GPU-{at}", at, "A100", size * GIB) for at, size in enumerate(sizes)]
    return [tuple(gpus[at : at + per_machine]) for at in range(0, len(gpus), per_machine)]


def test_less_memory_needs_fewer_cards() -> None:
    before = fill(machines(*[80] * 8), [Asked(40 * GIB)] * 10)
    after = fill(machines(*[80] * 8), [Asked(20 * GIB)] * 10)
    assert (before, after) == (Filled(5, 0), Filled(3, 0))


def test_the_largest_are_placed_first_so_that_all_fit() -> None:
    asked = [Asked(size * GIB) for size in (30, 30, 50, 50)]
    assert fill(machines(80, 80), asked) == Filled(2, 0)


def test_whole_cards_and_several_at_once() -> None:
    assert fill(machines(80, 80, 80, 80), [Asked(None, 2), Asked(100 * GIB, 2), Asked(20 * GIB)]) == Filled(
        4, 0
    )
    assert fill(machines(80, 80, per_machine=1), [Asked(100 * GIB, 2)]) == Filled(0, 1), (
        "two machines are not one"
    )


def test_what_finds_no_room_is_counted() -> None:
    assert fill(machines(16), [Asked(17 * GIB), Asked(16 * GIB), Asked(1)]) == Filled(1, 2)
    assert fill([], [Asked(1)]) == Filled(0, 1)


@given(st.lists(st.integers(1, 80), max_size=20))
def test_no_card_is_overfull_and_all_that_can_fit_alone_is_placed(sizes: list[int]) -> None:
    filled = fill(machines(*[80] * 20), [Asked(size * GIB) for size in sizes])
    assert filled.left_over == 0
    assert -(-sum(sizes) // 80) <= filled.used <= len(sizes)
