"""Finds what room on a card is worth, from the best way to cut cards into the parts that are asked for.

The fewest cards that hold all parts is the cutting stock problem. The prices of its linear relaxation (the
duals) say how much of a card each part is worth; they are found by column generation (Gilmore and Gomory,
1961), in which a knapsack problem proposes the next way to cut a card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

STEPS = 100
"""Into which a card is divided."""
_MOST_WORK = 1_500_000
"""Inner steps; about a tenth of a second. Prices that are not final by then are scaled down, see `prices`."""
_NEAR = 1 + 1e-6


def room_values(parts: Mapping[int, float]) -> tuple[float, ...]:
    """Returns what room of 0, 1, ... `STEPS` steps is worth, in cards. `parts`: how many parts of each size
    are asked for; the sizes are in steps.
    """
    sizes = sorted(parts)
    if not sizes:
        return (0.0,) * (STEPS + 1)
    return tuple(_knapsack(sizes, prices(sizes, [parts[size] for size in sizes]))[0])


def prices(sizes: Sequence[int], counts: Sequence[float]) -> list[float]:
    """Returns the price of each size. No card is ever worth more than 1 by them: while a cut is worth more,
    they are divided by it (Farley, 1990), so that they may be taken before they are final.
    """
    count = len(sizes)
    alone = [STEPS // size for size in sizes]
    inverse = [[1.0 / alone[row] if row == at else 0.0 for at in range(count)] for row in range(count)]
    cards = [number / fit for number, fit in zip(counts, alone, strict=True)]
    price = [1.0 / fit for fit in alone]
    best = 1.0
    for _ in range(max(1, _MOST_WORK // (count * (count + STEPS)))):
        worth, last = _knapsack(sizes, price)
        best = worth[STEPS]
        if best <= _NEAR:
            break
        cut = _cut(sizes, last)
        change = [sum(row[at] * number for at, number in cut.items()) for row in inverse]
        ratio, leaves = min((cards[row] / by, row) for row, by in enumerate(change) if by > 1e-9)
        _pivot(inverse, change, leaves)
        cards = [max(0.0, now - ratio * by) for now, by in zip(cards, change, strict=True)]
        cards[leaves] = ratio
        price = [sum(column) for column in zip(*inverse, strict=True)]
    scale = max(best, 1.0)
    return [each / scale for each in price]


def _knapsack(sizes: Sequence[int], price: Sequence[float]) -> tuple[list[float], list[int]]:
    """Returns for each room the worth of its best filling, and the part that it was completed with; -1 if a
    step stays empty.
    """
    worth, last = [0.0] * (STEPS + 1), [-1] * (STEPS + 1)
    items = [(at, size, price[at]) for at, size in enumerate(sizes)]
    for room in range(1, STEPS + 1):
        best, part = worth[room - 1], -1
        for at, size, each in items:
            if size > room:
                break
            if worth[room - size] + each > best + 1e-12:
                best, part = worth[room - size] + each, at
        worth[room], last[room] = best, part
    return worth, last


def _cut(sizes: Sequence[int], last: Sequence[int]) -> dict[int, int]:
    """Returns how many parts of each size the best filling of a whole card has."""
    cut, room = dict[int, int](), STEPS
    while room > 0:
        part = last[room]
        if part >= 0:
            cut[part] = cut.get(part, 0) + 1
        room -= sizes[part] if part >= 0 else 1
    return cut


def _pivot(inverse: list[list[float]], change: Sequence[float], leaves: int) -> None:
    pivot = [each / change[leaves] for each in inverse[leaves]]
    for row, by in enumerate(change):
        if by and row != leaves:
            inverse[row] = [each - by * out for each, out in zip(inverse[row], pivot, strict=True)]
    inverse[leaves] = pivot
