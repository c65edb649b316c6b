"""Parses the description of simulated GPUs: `2xA100-80GB,1xT4`, `4x16GiB`, `1xA100-80GB/3g.40gb+2g.20gb`, and
`2xT4@615.20`: the same with the version of the simulated driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from cotenant.core.errors import BadInput
from cotenant.core.units import format_bytes, parse_bytes
from cotenant.hardware.standin import layout
from cotenant.hardware.standin.models import MIB, MODELS, Model, Profile, sized

_FORMS = "2xA100-80GB,1xT4 or 4x16GiB, with MIG instances as 1xA100-80GB/3g.40gb+2g.20gb"
DRIVER_VERSION = "580.95.05"
"""Of the simulated driver, where the description names none."""
_PART = re.compile(r"(?:([0-9]{1,4})[xX])?([^/]+)(?:/(.*))?")
_SIZE = re.compile(r"[0-9]+(?:\.[0-9]+)?[KMGT]i?B?", re.IGNORECASE | re.ASCII)
_DRIVER = re.compile(r"[0-9]{3,4}(\.[0-9]{1,4}){0,2}", re.ASCII)
_SMALLEST = 64 * MIB
_LARGEST = 2**46


@dataclass(frozen=True, slots=True)
class CardSpec:
    """One GPU of a description."""

    model: Model
    instances: tuple[tuple[str, Profile], ...] = ()
    """MIG instances by the name of their profile; without any the GPU is used as a whole."""


class Description(NamedTuple):
    """GPUs and the driver that are simulated."""

    cards: tuple[CardSpec, ...]
    driver: str
    """Its version; from 615 on it limits memory by cgroup."""


def parse_description(text: str) -> Description:
    cards, sign, driver = text.partition("@")
    if sign and not _DRIVER.fullmatch(driver.strip()):
        raise BadInput(
            f"simulated GPUs: {driver[:40]!a} in {text[:200]!a} is not the version of a driver, write "
            "2xT4@615.20"
        )
    return Description(_parse_cards(cards), driver.strip() or DRIVER_VERSION)


def parse_spec(text: str) -> tuple[CardSpec, ...]:
    """Returns the GPUs alone."""
    return parse_description(text).cards


def _parse_cards(text: str) -> tuple[CardSpec, ...]:
    cards = tuple(card for part in text.split(",") for card in _parse_part(part.strip(), text))
    places = sum(1 + len(card.instances) for card in cards)
    if places > layout.CARDS:
        raise BadInput(f"simulated GPUs: {text!r} is {places} GPUs, at most {layout.CARDS} can be simulated")
    return cards


def _parse_part(part: str, text: str) -> list[CardSpec]:
    match = _PART.fullmatch(part)
    if match is None:
        raise BadInput(f"simulated GPUs: {part!r} in {text!r} is not understood, write {_FORMS}")
    count = 1 if match[1] is None else int(match[1])
    if count < 1:
        raise BadInput(f"simulated GPUs: {part!r} in {text!r} is no GPU at all, write {_FORMS}")
    model = _parse_model(match[2].strip())
    instances = () if match[3] is None else _parse_instances(model, match[3])
    return [CardSpec(model, instances)] * count


def _parse_model(text: str) -> Model:
    known = {name.lower(): model for name, model in MODELS.items()}
    if text.lower() in known:
        return known[text.lower()]
    if not _SIZE.fullmatch(text):
        raise BadInput(
            f"simulated GPUs: no model {text!r}, the models are {', '.join(MODELS)}; a size such as 16GiB "
            "will do too"
        )
    size = parse_bytes(text, "simulated GPUs")
    if not _SMALLEST <= size <= _LARGEST:
        raise BadInput(
            f"simulated GPUs: {text} is not between {format_bytes(_SMALLEST)} and {format_bytes(_LARGEST)}"
        )
    return sized(size, text)


def _parse_instances(model: Model, text: str) -> tuple[tuple[str, Profile], ...]:
    if not model.profiles:
        raise BadInput(f"simulated GPUs: {model.name} cannot be cut into MIG instances")
    names = [name.strip().lower() for name in text.split("+")]
    for name in names:
        if name not in model.profiles:
            raise BadInput(
                f"simulated GPUs: {model.name} has no MIG profile {name!r}, "
                f"it has {', '.join(model.profiles)}"
            )
    profiles = tuple((name, model.profiles[name]) for name in names)
    if sum(p.slices for _, p in profiles) > 7 or sum(p.memory_slices for _, p in profiles) > 8:
        raise BadInput(f"simulated GPUs: {text} is more than one {model.name} can be cut into")
    return profiles
