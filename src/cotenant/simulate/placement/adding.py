"""Reads which nodes are added to a cluster: `4xA100-80GB` is one node with four such cards, `2x8xH100` two
nodes with eight each, and `2x4xMI300X:192Gi` says how large a card is that is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU, LONGEST_MODEL
from cotenant.core.loss import PLENTY, Spare
from cotenant.core.units import check_unit, parse_bytes
from cotenant.simulate.placement.trace import CARD, KUBELET_PODS, MOST_CARDS_OF_NODE
from cotenant.simulate.placement.workload import Recording, SimulatedNode

OPTION = "add"
MOST_ADDED = 10_000
_FORM = re.compile(r"(?:([0-9]{1,9})[xX])?([0-9]{1,9})[xX]([^:]+)(?::(.+))?")
_SIZE = re.compile(r"[0-9]+(?:\.[0-9]+)?[KMGT]i?B?", re.IGNORECASE | re.ASCII)
_FORMS = "4xA100-80GB for a node with 4 cards, 10x8xH100-80GB for ten nodes with 8, 2x4xNAME:48Gi for others"


@dataclass(frozen=True, slots=True)
class Added:
    """Nodes that are added, all alike."""

    text: str
    nodes: int
    cards: int
    model: str
    size: int | None
    """Bytes of a card; None if it is not said."""


def parse_added(text: str) -> Added:
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"{OPTION}: {text[:60]!a} is not understood: write {_FORMS}")
    nodes, cards, model = int(match[1] or 1), int(match[2]), match[3].strip()
    if not 1 <= nodes <= MOST_ADDED:
        raise BadInput(
            f"{OPTION}: {text[:60]!a} is {nodes} nodes: write 1 to {MOST_ADDED}, as in 9x8xH100-80GB"
        )
    if not 1 <= cards <= MOST_CARDS_OF_NODE:
        raise BadInput(
            f"{OPTION}: {text[:60]!a} has {cards} cards in a node: write 1 to {MOST_CARDS_OF_NODE}; for "
            "more, write several nodes, as in 10x8xH100-80GB"
        )
    if not model.isprintable() or not model or len(model) > LONGEST_MODEL:
        raise BadInput(f"{OPTION}: {text[:60]!a} names no model: write {_FORMS}")
    written = match[4] if match[4] is not None else model if _SIZE.fullmatch(model) else None
    size = None
    if written is not None:
        check_unit(written, OPTION)
        size = parse_bytes(written, OPTION)
    return Added(text.strip(), nodes, cards, model, size)


def add(
    recording: Recording, added: Sequence[Added], known: Mapping[str, tuple[str, int]], has: Spare
) -> list[SimulatedNode]:
    """Returns the nodes that are added. A card is as large as it is said to be, as those of its model in the
    cluster are, or as `known` has it: the driver's name of each model and its size.

    Of `has`, what is PLENTY is as in the cluster: CPU and memory for each card, and places for pods, as nodes
    with that model have them on average, or all nodes if there is no such model.
    """
    names = {node.name for node in recording.nodes}
    found = list[SimulatedNode]()
    for kind, each in enumerate(added, 1):
        alike = [node for node in recording.nodes if any(gpu.is_model(each.model) for gpu in node.gpus)]
        model, size = _card(each, recording, alike, known)
        own = _beside(alike or recording.nodes, each.cards, has)
        for number in range(each.nodes):
            name = _free(f"added-{kind}-{number + 1}", names)
            cards = tuple(GPU(f"{name}-{at}", at, model, size) for at in range(each.cards))
            found.append(SimulatedNode(name, cards, own))
    if len(found) > MOST_ADDED:
        raise BadInput(f"{OPTION}: {len(found)} nodes in all: write at most {MOST_ADDED}")
    return found


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "-new"
    taken.add(name)
    return name


def _card(
    added: Added, recording: Recording, alike: Iterable[SimulatedNode], known: Mapping[str, tuple[str, int]]
) -> tuple[str, int]:
    """Returns the model's full name and a card's size."""
    there = {(gpu.model, gpu.memory) for node in alike for gpu in node.gpus if gpu.is_model(added.model)}
    exact = known.get(added.model.lower())
    others = [exact] if exact else [each for each in known.values() if _is_model(each[0], added.model)]
    found = _one_model(added, there) or _one_model(added, others)
    if not recording.sized:
        if added.size is not None:
            raise BadInput(
                f"{OPTION}: {added.text[:60]!a} has a size, and the recorded cards have none: all count the "
                f"same. Write {added.nodes}x{added.cards}xMODEL"
            )
        return (found or (added.model, 0))[0], CARD
    if added.size is not None:
        return (found or (added.model, 0))[0], added.size
    if found is None:
        raise BadInput(
            f"{OPTION}: {added.text[:60]!a}: the size of such a card is not known: write it after a colon, "
            f"as in {added.cards}x{added.model[:40]}:48Gi; known are {', '.join(known)}"
        )
    return found


def _is_model(name: str, wish: str) -> bool:
    return GPU("-", 0, name, 0).is_model(wish)


def _one_model(added: Added, cards: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """Returns model and size, the larger where drivers keep a little; None if there is no such card."""
    names = sorted({name for name, _ in cards})
    if len(names) > 1:
        raise BadInput(
            f"{OPTION}: {added.text[:60]!a} may be {' or '.join(names)[:200]}: write more of the name"
        )
    return max(cards, default=None)


def _beside(nodes: Sequence[SimulatedNode], cards: int, has: Spare) -> Spare:
    there = sum(len(node.gpus) for node in nodes)

    def for_cards(amounts: Sequence[int]) -> int:
        reported = [each for each in amounts if each < PLENTY]
        return sum(reported) * cards // there if len(reported) == len(amounts) else PLENTY

    places = [node.has.pods for node in nodes if node.has.pods < PLENTY]
    return Spare(
        for_cards([node.has.cpu for node in nodes]) if has.cpu >= PLENTY else has.cpu,
        for_cards([node.has.memory for node in nodes]) if has.memory >= PLENTY else has.memory,
        (max(places, default=KUBELET_PODS) if has.pods >= PLENTY else has.pods),
    )
