"""Formats bytes for people, as Kubernetes writes them."""

from __future__ import annotations

_UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def show(amount: int) -> str:
    """Formats bytes in the largest unit that fits, rounded down to a tenth: `4Gi`, `3.5Gi`."""
    for unit, size in _UNITS:
        if amount >= size:
            tenths = amount * 10 // size
            exact = amount % size == 0
            return f"{tenths // 10}{unit}" if exact else f"{tenths // 10}.{tenths % 10}{unit}"
    return str(amount)
