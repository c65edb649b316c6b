"""Finds the grant of this process: the slot of Cotenant, or the variables of gpushare or Volcano."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .card_size import read_sizes
from .errors import NoGrant
from .grant import Card, Grant
from .slot_file import read_slot
from .variables import GPUSHARE_CONTAINER, VOLCANO_ALLOCATED, from_gpushare, from_volcano

SLOT_IN_CONTAINER = "/run/cotenant/slot"
"""As for the shim, it wins over the variable, which a container's author controls."""
SLOT_VARIABLE = "COTENANT_SLOT"
SHIM = "libcotenant.so"
MAPS = "/proc/self/maps"


def find_grant(environ: Mapping[str, str], container: str = SLOT_IN_CONTAINER) -> Grant:
    """Returns the grant of this process; NoGrant if it has none."""
    folder = container if os.path.exists(container) else environ.get(SLOT_VARIABLE)
    if folder:
        return _from_slot(folder)
    found = from_gpushare(environ) or from_volcano(environ)
    if found is None:
        raise NoGrant(
            f"this process has no grant: {container} is not mounted, and none of {SLOT_VARIABLE}, "
            f"{GPUSHARE_CONTAINER} (gpushare) and {VOLCANO_ALLOCATED} (Volcano) is set. Start it with "
            "`cotenant run --gpu-memory 4Gi -- ...`, or in a container that asks for cotenant.dev/gpu-memory"
        )
    return found


def is_shim_loaded() -> bool:
    """Whether the shim is loaded into this process. LD_PRELOAD and /etc/ld.so.preload do not tell: musl
    ignores one of them, and a library that cannot be read is left out without a word.
    """
    try:
        with open(MAPS, encoding="utf-8", errors="replace") as maps:
            paths = {line.rstrip("\n").partition("/")[2].removesuffix(" (deleted)") for line in maps}
    except OSError:
        return SHIM in os.environ.get("LD_PRELOAD", "")
    return any(os.path.basename(path) == SHIM for path in paths)


def _from_slot(folder: str) -> Grant:
    """Reads the cards' sizes only where they are needed: the driver takes a moment to answer."""
    slot, shim = read_slot(folder), is_shim_loaded()
    grant = Grant(f"slot {folder}", (), slot.mode, shim)
    sizes, unread = ({}, "") if grant.enforced else read_sizes(card.uuid for card in slot.cards)
    cards = tuple(_card(card.uuid, card.limit, card.context, sizes.get(card.uuid)) for card in slot.cards)
    return grant._replace(cards=cards, unread=unread)


def _card(uuid: str, limit: int, context: int, size: int | None) -> Card:
    return Card(limit, size, context, uuid, whole=size is not None and limit >= size)
