"""An independent judge: it reads only the API, and at every event adds up what is granted on each card.

Pods come in one watch, in the order in which the API server stored them, so each state that it adds up is one
that really was. It also measures how long room that exists takes to reach a pod that waits for it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from cluster.testbed.api import Api, Object

from .accounts import GRANT, Ask, Card, Hold, ask_of, cards_of, fits, has_ended, holds_of
from .watching import watch

LOOK_EVERY = 0.2


@dataclass(frozen=True)
class Wait:
    """How long a pod was unbound although there was room for it and all components were up."""

    pod: str
    seconds: float
    bound: bool
    """False: it was not over when something was broken or the pod was deleted; at least so long, then."""
    ended: float = field(default_factory=time.time)
    """Unix time."""


class Auditor:
    def __init__(self, api: Api, all_up: Callable[[], bool] = lambda: True) -> None:
        self._api = api
        self._all_up = all_up
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._nodes: dict[str, dict[str, Card]] = {}
        self._holds: dict[tuple[str, str], dict[tuple[str, str], Hold]] = {}
        """By node and card, known or not: what a pod holds, it holds while its node is away."""
        self._places: dict[str, list[tuple[str, str]]] = {}
        """The cards of each pod that holds something, by UID."""
        self._granted: dict[str, tuple[str, str]] = {}
        """Node and grant as they were when the pod was bound: neither ever changes."""
        self._nodes_known = threading.Event()
        self._waiting: dict[str, tuple[str, Ask]] = {}
        self._room_since: dict[str, float] = {}
        self._had_to_wait: set[str] = set()
        self.violations: list[str] = []
        self.waits: list[Wait] = []
        self.at_once: list[Wait] = []
        """Of pods that found room when they were created."""
        self.events = 0
        self.bound = 0
        self.relists = 0

    def __enter__(self) -> Self:
        threads = [
            threading.Thread(
                target=self._follow, args=("/api/v1/nodes", self._node, self._nodes_listed), daemon=True
            ),
            threading.Thread(
                target=self._follow, args=("/api/v1/pods", self._pod, self._pods_listed), daemon=True
            ),
            threading.Thread(target=self._look, daemon=True),
        ]
        threads[0].start()
        if not self._nodes_known.wait(30):
            raise AssertionError("the auditor could not list the nodes")
        for thread in threads[1:]:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def charges(self) -> dict[tuple[str, str], int]:
        """Bytes held by node and card UUID, where anything is held."""
        with self._lock:
            return {
                place: sum(hold.memory for hold in holds.values())
                for place, holds in self._holds.items()
                if holds
            }

    def waiting(self) -> list[str]:
        with self._lock:
            return [name for name, _ in self._waiting.values()]

    def _follow(
        self,
        path: str,
        one: Callable[[Object, bool], None],
        listed: Callable[[list[Object]], None],
    ) -> None:
        def happened(object: Object, deleted: bool) -> None:
            with self._lock:
                self.events += 1
                one(object, deleted)

        def begun(objects: list[Object]) -> None:
            with self._lock:
                self.relists += 1
                listed(objects)

        watch(self._api, path, happened, begun, self._stopped)

    def _nodes_listed(self, nodes: list[Object]) -> None:
        for gone in self._nodes.keys() - {each["metadata"]["name"] for each in nodes}:
            del self._nodes[gone]
        for each in nodes:
            self._node(each, False)
        self._nodes_known.set()

    def _node(self, node: Object, deleted: bool) -> None:
        name = node["metadata"]["name"]
        self._nodes.pop(name, None)
        if deleted:
            return
        cards = self._nodes[name] = cards_of(node)
        for uuid, card in cards.items():
            card.holds = self._holds.setdefault((name, uuid), {})
        self._check(name)

    def _pods_listed(self, pods: list[Object]) -> None:
        there = {each["metadata"]["uid"] for each in pods}
        for uid in self._places.keys() - there:
            self._release(uid)
        for uid in self._waiting.keys() - there:
            self._no_longer_waiting(uid)
        for each in pods:
            self._pod(each, False)

    def _pod(self, pod: Object, deleted: bool) -> None:
        uid = pod["metadata"]["uid"]
        if deleted or has_ended(pod):
            self._release(uid)
            self._no_longer_waiting(uid)
            return
        node = pod["spec"].get("nodeName")
        if node:
            if uid not in self._places:
                self._charge(uid, node, pod)
            elif (now := _granted(pod)) != self._granted[uid]:
                self._violated(
                    f"the grant of {pod['metadata']['name']} became {now}, it was {self._granted[uid]}"
                )
                self._granted[uid] = now
            self._was_bound(uid)
            return
        ask = ask_of(pod)
        if ask is None:
            self._no_longer_waiting(uid)
        elif uid not in self._waiting:
            self._waiting[uid] = (pod["metadata"]["name"], ask)
            if fits(ask, self._nodes.values()):
                if self._all_up():
                    self._room_since[uid] = time.monotonic()
            else:
                self._had_to_wait.add(uid)

    def _charge(self, uid: str, node: str, pod: Object) -> None:
        for uuid, hold in holds_of(pod):
            self._holds.setdefault((node, uuid), {})[uid, hold.container] = hold
            self._places.setdefault(uid, []).append((node, uuid))
        if uid in self._places:
            self._granted[uid] = _granted(pod)
            self.bound += 1
            self._check(node)

    def _release(self, uid: str) -> None:
        self._granted.pop(uid, None)
        for place in self._places.pop(uid, ()):
            for key in [key for key in self._holds[place] if key[0] == uid]:
                del self._holds[place][key]

    def _check(self, node: str) -> None:
        cards = self._nodes.get(node)
        if not cards:
            return
        for (where, uuid), holds in self._holds.items():
            if where == node and holds and uuid not in cards:
                self._violated(
                    f"{node} has no card {uuid}, and it is granted: {sorted(map(str, holds.values()))}"
                )
        for uuid, card in cards.items():
            if what := card.wrong():
                self._violated(f"{node}, card {uuid}: {what}: {sorted(map(str, card.holds.values()))}")

    def _violated(self, what: str) -> None:
        self.violations.append(f"event {self.events}: {what}")

    def _was_bound(self, uid: str) -> None:
        waited = self._waiting.pop(uid, None)
        since = self._room_since.pop(uid, None)
        if waited and since is not None:
            wait = Wait(waited[0], time.monotonic() - since, bound=True)
            (self.waits if uid in self._had_to_wait else self.at_once).append(wait)
        self._had_to_wait.discard(uid)

    def _no_longer_waiting(self, uid: str) -> None:
        waited = self._waiting.pop(uid, None)
        since = self._room_since.pop(uid, None)
        if waited and since is not None:
            self._not_over(uid, waited[0], time.monotonic() - since)
        self._had_to_wait.discard(uid)

    def _not_over(self, uid: str, name: str, seconds: float) -> None:
        kind = self.waits if uid in self._had_to_wait else self.at_once
        kind.append(Wait(name, seconds, bound=False))

    def _look(self) -> None:
        """Since when each waiting pod could have been bound: the time begins anew when its room is taken."""
        while not self._stopped.wait(LOOK_EVERY):
            up = self._all_up()
            with self._lock:
                now = time.monotonic()
                known: dict[Ask, bool] = {}
                for uid, (name, ask) in self._waiting.items():
                    if not up:
                        since = self._room_since.pop(uid, None)
                        if since is not None:
                            self._not_over(uid, name, now - since)
                        continue
                    if ask not in known:
                        known[ask] = fits(ask, self._nodes.values())
                    if known[ask]:
                        self._room_since.setdefault(uid, now)
                    else:
                        self._had_to_wait.add(uid)
                        self._room_since.pop(uid, None)


def _granted(pod: Object) -> tuple[str, str]:
    return pod["spec"]["nodeName"], pod["metadata"].get("annotations", {}).get(GRANT, "")


def percentile(waits: list[Wait], percent: float) -> float:
    """Of those that are over; one that is not counts once it is longer than they are."""
    over = [each.seconds for each in waits if each.bound]
    longest = max(over, default=0.0)
    seconds = sorted([*over, *(each.seconds for each in waits if not each.bound and each.seconds > longest)])
    return seconds[min(len(seconds) - 1, int(len(seconds) * percent / 100))] if seconds else 0.0


def until_quiet(auditor: Auditor, seconds: float = 60) -> None:
    """Until it has seen that nothing is held any more."""
    end = time.monotonic() + seconds
    while auditor.charges():
        if time.monotonic() > end:
            raise AssertionError(f"still held after {seconds:.0f} s: {auditor.charges()}")
        time.sleep(0.05)
