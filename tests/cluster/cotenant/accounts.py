"""The auditor's own arithmetic: what pods ask for and hold, and what cards have. It shares no line with the product."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cluster.testbed.api import Object

GRANT = "cotenant.dev/grant"
GPUS = "cotenant.dev/gpus"
MEMORY = "cotenant.dev/gpu-memory"
WHOLE = "cotenant.dev/gpu"
SUFFIXES = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}


@dataclass(frozen=True)
class Hold:
    """A container's part of a card."""

    pod: str
    container: str
    memory: int
    whole: bool


@dataclass(frozen=True)
class Ask:
    """What a pod with one GPU container waits for."""

    per_card: int
    cards: int
    whole: bool


@dataclass
class Card:
    memory: int
    usable: bool = True
    outside: int = 0
    holds: dict[tuple[str, str], Hold] = field(default_factory=dict)
    """By pod UID and container."""

    @property
    def held(self) -> int:
        return sum(hold.memory for hold in self.holds.values())

    def has_room(self, ask: Ask) -> bool:
        if not self.usable:
            return False
        if ask.whole:
            return not self.holds and not self.outside
        free = self.memory - self.held - self.outside
        return free >= ask.per_card and not any(hold.whole for hold in self.holds.values())

    def wrong(self) -> str | None:
        """What is over-granted here, if anything is."""
        if self.held > self.memory:
            return f"{self.held} bytes are granted of {self.memory}"
        if len(self.holds) > 1 and any(hold.whole for hold in self.holds.values()):
            return "a whole card is shared"
        return None


def holds_of(pod: Object) -> Iterator[tuple[str, Hold]]:
    """What a bound pod that has not ended holds, with the card's UUID. Tests of policies write what is no grant."""
    text = pod["metadata"].get("annotations", {}).get(GRANT)
    if text is None or not pod["spec"].get("nodeName") or has_ended(pod) or not text.startswith("{"):
        return
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for slot in json.loads(text).get("slots", ()):
        for share in slot["shares"]:
            yield (
                share["uuid"],
                Hold(name, slot["container"], share["memory"], bool(share.get("whole"))),
            )


def has_ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def cards_of(node: Object) -> dict[str, Card]:
    annotations = node["metadata"].get("annotations", {})
    if GPUS not in annotations:
        return {}
    drained = annotations.get("cotenant.dev/drained", "").split(",")
    return {
        each["uuid"]: Card(
            each["memory"],
            usable="problem" not in each and each["uuid"] not in drained,
            outside=each.get("outside", 0),
        )
        for each in json.loads(annotations[GPUS])["cards"]
    }


def ask_of(pod: Object) -> Ask | None:
    """None if the pod does not wait for a card, or is of a kind that this does not measure."""
    spec = pod["spec"]
    if spec.get("nodeName") or spec.get("schedulingGates") or "deletionTimestamp" in pod["metadata"]:
        return None
    asking = [
        (each["name"], limits)
        for each in spec["containers"]
        if (limits := each.get("resources", {}).get("limits", {})).keys() & {MEMORY, WHOLE}
    ]
    if len(asking) != 1 or spec.get("initContainers"):
        return None
    name, limits = asking[0]
    if WHOLE in limits:
        return Ask(0, amount(limits[WHOLE]), whole=True)
    cards = int(pod["metadata"].get("annotations", {}).get(f"gpu-count.cotenant.dev/{name}", "1"))
    return Ask(-(-amount(limits[MEMORY]) // cards), cards, whole=False)


def fits(ask: Ask, nodes: Iterable[dict[str, Card]]) -> bool:
    return any(sum(card.has_room(ask) for card in cards.values()) >= ask.cards for cards in nodes)


def amount(text: str) -> int:
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return int(float(text.removesuffix(suffix)) * factor)
    return int(text)
