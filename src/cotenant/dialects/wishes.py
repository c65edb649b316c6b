"""Reads a pod's annotations about its GPUs: models, UUIDs, count, placement and mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cotenant.core.demand import PLACEMENTS, SLOT_CARDS, Demand
from cotenant.core.errors import BadInput
from cotenant.core.eviction import EVICTIONS
from cotenant.core.gpu import LONGEST_MODEL
from cotenant.core.mode import Mode, parse_mode
from cotenant.core.units import LARGEST, Memory
from cotenant.dialects import names
from cotenant.dialects.quantity import parse_whole, show

MOST_NAMED = 256
"""The most models or UUIDs in one annotation: every GPU of the cluster is compared with each of them."""
LONGEST_WISH = 12 * 2**10
"""Characters of one annotation: 256 UUIDs, and some to spare. It is kept while the pod exists."""
LONGEST_NAME = LONGEST_MODEL
"""Characters of one model or UUID."""
LONGEST_CONTAINER = 63
"""Characters of a container's name, as Kubernetes has it."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the annotations of one pod ask for. Models, UUIDs and placement apply to all its containers."""

    counts: Mapping[str, int]
    """The number of GPUs over which memory is spread, by container; 1 if it is not named here."""
    models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    placement: str = PLACEMENTS[0]
    mode: Mode | None = None
    """None: the namespace decides."""
    eviction: str | None = None
    """Whether it is evicted if it holds more than its limit; None: the namespace decides."""

    def memory(self, container: str, resource: str, size: int) -> Demand:
        """Makes a demand for this many bytes in total."""
        gpus = self.counts.get(container, 1)
        field = f"container {container!r}: {resource}"
        if size > LARGEST:
            raise BadInput(f"{field}: {size} bytes are more than there can be: ask for less")
        if size < gpus:
            raise BadInput(f"{field}: {size} bytes cannot be spread over {gpus} GPUs: ask for more")
        return Demand(
            Memory(bytes=size), gpus, models=self.models, uuids=self.uuids, placement=self.placement
        )

    def whole_cards(self, container: str, resource: str, cards: int) -> Demand:
        """Makes a demand for this many whole GPUs."""
        field = f"container {container!r}: {resource}"
        if container in self.counts:
            raise BadInput(
                f"{field}: whole GPUs are counted by {resource} itself: leave out the annotation "
                f"{names.gpu_count(container)}, which spreads memory over GPUs"
            )
        if cards > SLOT_CARDS:
            raise BadInput(
                f"{field}: {cards} GPUs are more than a container can use: ask for at most {SLOT_CARDS}, and "
                "for more in other containers or pods"
            )
        return Demand(whole=cards, models=self.models, uuids=self.uuids, placement=self.placement)


def read_wishes(annotations: Mapping[str, str]) -> Wishes:
    """Reads the annotations; BadInput names the one that is not valid. An empty one counts as missing."""
    annotations = {key: text for key, text in annotations.items() if text.strip()}
    return Wishes(
        counts={
            container: _count(text, container)
            for key, text in annotations.items()
            if (container := names.counted_container(key)) is not None
        },
        models=_list(annotations, names.GPU_MODEL, "A100,H100"),
        uuids=_list(annotations, names.GPU_UUID, "GPU-5a3f0e1c-..."),
        placement=_choice(annotations, names.PLACEMENT, PLACEMENTS) or PLACEMENTS[0],
        mode=read_mode(annotations, "annotation"),
        eviction=_choice(annotations, names.EVICT_OVER_LIMIT, EVICTIONS),
    )


def read_mode(texts: Mapping[str, str], where: str) -> Mode | None:
    """Reads the mode from a pod's annotations or a namespace's labels; None if it is not there or empty.

    `where` begins the message of BadInput, as in `namespace team: label`.
    """
    text = texts.get(names.ENFORCE, "")
    return parse_mode(text, f"{where} {names.ENFORCE}") if text.strip() else None


def _count(text: str, container: str) -> int:
    if len(container) > LONGEST_CONTAINER:
        raise BadInput(
            f"annotation {names.gpu_count(show(container))}: no container has a name of {len(container)} "
            f"characters: name one of the pod"
        )
    key = names.gpu_count(container)
    count = parse_whole(text, f"annotation {key}", "2")
    if not 1 <= count <= SLOT_CARDS:
        raise BadInput(f"annotation {key}: {show(text)} is not a number of GPUs from 1 to {SLOT_CARDS}")
    return count


def _list(annotations: Mapping[str, str], key: str, example: str) -> tuple[str, ...]:
    if key not in annotations:
        return ()
    if len(annotations[key]) > LONGEST_WISH:
        raise BadInput(
            f"annotation {key}: it is longer than {LONGEST_WISH} characters: name those that matter, or "
            "choose nodes by nodeSelector"
        )
    parts = tuple(part.strip() for part in annotations[key].split(","))
    if not all(parts):
        raise BadInput(
            f"annotation {key}: {show(annotations[key])} has an empty name: write it like {example}"
        )
    if len(parts) > MOST_NAMED:
        raise BadInput(
            f"annotation {key}: it names {len(parts)}, at most {MOST_NAMED} can be named: name those that "
            "matter, or choose nodes by nodeSelector"
        )
    longest = max(parts, key=len)
    if len(longest) > LONGEST_NAME:
        raise BadInput(
            f"annotation {key}: {show(longest)} is longer than {LONGEST_NAME} characters: write it like "
            f"{example}"
        )
    return parts


def _choice(annotations: Mapping[str, str], key: str, choices: tuple[str, ...]) -> str | None:
    if key not in annotations:
        return None
    if annotations[key] not in choices:
        raise BadInput(f"annotation {key}: {show(annotations[key])} is not one of {', '.join(choices)}")
    return annotations[key]
