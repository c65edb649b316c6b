"""Reads the variables in which gpushare (Alibaba Cloud) and Volcano tell a container its share of a card."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ShareError
from .grant import Card, Grant

GPUSHARE_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
GPUSHARE_CARD = "ALIYUN_COM_GPU_MEM_DEV"
GPUSHARE_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
VOLCANO_ALLOCATED = "VOLCANO_GPU_ALLOCATED"
VOLCANO_CARD = "VOLCANO_GPU_MEMORY_TOTAL"

CONTEXT = 512 << 20
"""Bytes of a CUDA context where nobody says how many: the default of Cotenant's agents."""

_GIB, _MIB = 1 << 30, 1 << 20
_SMALLEST_IN_MIB = 1024
"""gpushare counts in GiB or in MiB, and the variables do not say which: no card has 1024 GiB or more, and
none has less than 1024 MiB.
"""
_MOST_CARDS = 16
"""Volcano writes the number of cards for a container that asks for whole ones. No container has more, and
fewer MiB than that hold no context.
"""
_LARGEST = 1 << 32


def from_gpushare(environ: Mapping[str, str]) -> Grant | None:
    """Reads gpushare's variables; None if they are not set."""
    if not environ.get(GPUSHARE_CONTAINER):
        return None
    if environ.get(GPUSHARE_INDEX) == "-1":
        raise ShareError(
            f"{GPUSHARE_INDEX}=-1: gpushare found no card for this container: see the pod's events"
        )
    if not environ.get(GPUSHARE_CARD):
        raise ShareError(
            f"{GPUSHARE_CONTAINER} is set and {GPUSHARE_CARD} is not: the card's size belongs beside it, in "
            "the same unit"
        )
    asked, card = _number(environ, GPUSHARE_CONTAINER), _number(environ, GPUSHARE_CARD)
    unit = _MIB if card >= _SMALLEST_IN_MIB else _GIB
    cards = environ.get(GPUSHARE_INDEX, "").count(",") + 1
    source = f"{GPUSHARE_CONTAINER}={asked} and {GPUSHARE_CARD}={card}, in {'MiB' if unit == _MIB else 'GiB'}"
    return Grant(source, (_card(asked * unit // cards, card, unit),) * cards)


def from_volcano(environ: Mapping[str, str]) -> Grant | None:
    """Reads Volcano's variables; None if they are not set."""
    if not environ.get(VOLCANO_ALLOCATED):
        return None
    asked = _number(environ, VOLCANO_ALLOCATED)
    card = _number(environ, VOLCANO_CARD) if environ.get(VOLCANO_CARD) else None
    if asked <= _MOST_CARDS:
        whole = Card(0, None, CONTEXT, whole=True) if card is None else _card(card * _MIB, card, _MIB)
        return Grant(f"{VOLCANO_ALLOCATED}={asked}, a number of whole cards", (whole,) * asked)
    if card is None:
        raise ShareError(
            f"{VOLCANO_ALLOCATED} is set and {VOLCANO_CARD} is not: the card's size in MiB belongs beside it"
        )
    source = f"{VOLCANO_ALLOCATED}={asked} and {VOLCANO_CARD}={card}, in MiB"
    return Grant(source, (_card(asked * _MIB, card, _MIB),))


def _card(limit: int, units: int, unit: int) -> Card:
    """Takes the card one unit larger than it was written: it was rounded down, and a fraction of the true
    size must not be more than the limit.
    """
    return Card(limit, (units + 1) * unit, CONTEXT, whole=limit >= units * unit)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) < 12 and 0 < int(text) < _LARGEST):
        raise ShareError(f"{name}: {text[:40]!a} is not a number above zero")
    return int(text)
