"""Reads and writes whole amounts of extended resources as Kubernetes quantities."""

from __future__ import annotations

from fractions import Fraction

from cotenant.core.errors import BadInput
from cotenant.core.quantity import BINARY, LONGEST, parse_quantity
from cotenant.core.units import LARGEST


def parse_whole(value: object, field: str, example: str) -> int:
    """Returns a whole number, zero or more; BadInput names the field. JSON numbers are quantities too."""
    amount: Fraction | int | None = None
    if isinstance(value, str):
        amount = parse_quantity(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        amount = value
    if amount is None:
        raise BadInput(f"{field}: {show(value)} is not a quantity: write it like {example}")
    if amount < 0:
        raise BadInput(f"{field}: {show(value)} is below zero: write it like {example}")
    if amount.denominator != 1:
        raise BadInput(f"{field}: {show(value)} is not a whole number: write it like {example}")
    if amount > LARGEST:
        raise BadInput(f"{field}: {show(value)} is more than there can be: write it like {example}")
    return int(amount)


def format_whole(amount: int) -> str:
    """Writes the number as the API server does in binary units: `3803Mi`, `1Gi`, `1000`."""
    for unit, size in reversed(BINARY.items()):
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return str(amount)


def show(value: object) -> str:
    """Shows what was written, without control characters and not too long."""
    if isinstance(value, int) and value.bit_length() > 4 * LONGEST:
        return "a number of too many digits"
    text = ascii(value[: LONGEST + 1] if isinstance(value, str) else value)
    return text if len(text) <= 2 * LONGEST else f"{text[: 2 * LONGEST]}..."
