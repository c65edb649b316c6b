"""Kubernetes quantities of extended resources: exact, whole, and never below zero.

The grammar is the API server's own: narrower than what a person may type on a command line (`4GiB` is no
quantity), and without parts of a unit, which the API server refuses in extended resources.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from cotenant.core.errors import BadInput
from cotenant.core.units import LARGEST

_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SCALE: dict[str, Fraction] = {
    **{
        unit: Fraction(1000) ** (step - 3)
        for step, unit in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"))
    },
    **{unit: Fraction(1024) ** step for step, unit in enumerate(_BINARY, 1)},
}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,2})|([KMGTPE]i|[numkMGTPE])?)"
)
_LONGEST = 64
"""No quantity needs more characters; a longer text is a mistake, and slow to compute with."""


def parse_whole(value: object, field: str, example: str) -> int:
    """A whole number, zero included. JSON numbers are quantities too."""
    amount: Fraction | int | None = None
    if isinstance(value, str):
        amount = _amount(value)
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


@lru_cache(maxsize=1024)
def _amount(text: str) -> Fraction | int | None:
    """Remembered, since the pods of a cluster ask for the same few amounts."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    number, exponent, unit = match.groups()
    scale = Fraction(10) ** int(exponent) if exponent else _SCALE[unit or ""]
    amount = Fraction(number.removesuffix(".")) * scale
    return amount.numerator if amount.denominator == 1 else amount


def format_whole(amount: int) -> str:
    """The same number as the API server would print it in binary units: `3803Mi`, `1Gi`, `1000`."""
    for step in range(len(_BINARY), 0, -1):
        if amount and amount % 1024**step == 0:
            return f"{amount // 1024**step}{_BINARY[step - 1]}"
    return str(amount)


def show(value: object) -> str:
    """What was written, without letting it spoil or fill a terminal."""
    if isinstance(value, int) and value.bit_length() > 4 * _LONGEST:
        return "a number of too many digits"
    text = ascii(value[: _LONGEST + 1] if isinstance(value, str) else value)
    return text if len(text) <= 2 * _LONGEST else f"{text[: 2 * _LONGEST]}..."
