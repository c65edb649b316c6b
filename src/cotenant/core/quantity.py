"""Parses quantities as Kubernetes defines them: `4Gi`, `500m`, `1e3`, `2E`. Exact, never by way of floats.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
LONGEST = 64
"""Characters. No quantity needs more; a longer text is a mistake, and slow to compute with."""

_SCALE: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{unit: Fraction(size) for unit, size in (BINARY | DECIMAL).items()},
}
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(.*)", re.DOTALL)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,3})")


def split_number(text: str) -> tuple[Fraction, str] | None:
    """Splits a text into its number and the rest; None if it does not begin with a number."""
    match = _NUMBER.fullmatch(text) if len(text) <= LONGEST else None
    return None if match is None else (Fraction(match[1].removesuffix(".")), match[2])


def scale_of(suffix: str) -> Fraction | None:
    """Returns a suffix's factor: `Ki`, `m`, `E` (10^18), `e3` and `E3` (10^3); None if it is not valid."""
    exponent = _EXPONENT.fullmatch(suffix)
    return Fraction(10) ** int(exponent[1]) if exponent else _SCALE.get(suffix)


def parse_quantity(text: str) -> Fraction | int | None:
    """Returns the exact amount, an int if it is whole; None if the text is not a quantity."""
    return _parsed(text) if len(text) <= LONGEST else None


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Fraction | int | None:
    """Cached, since the pods of a cluster ask for the same few amounts. The text is short: what others send
    must not fill the cache with megabytes.
    """
    parts = split_number(text)
    scale = None if parts is None else scale_of(parts[1])
    if parts is None or scale is None:
        return None
    amount = parts[0] * scale
    return amount.numerator if amount.denominator == 1 else amount
