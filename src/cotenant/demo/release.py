"""Plays the scene of a worker that idles while somebody waits for its GPU: to zero and back."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from cotenant.demo.check import Check
from cotenant.demo.queue import MessageQueue
from cotenant.demo.stage import Actor, Stage, until

NEEDS = ("msgspec", "yaml", "aiohttp")
"""What `cotenant up` needs beyond the base installation."""
THRESHOLD = 3.0
MARGIN = 6.0
"""Seconds by which the release may come later than the threshold."""

_FILE = """\
poll: 300ms
workloads:
  a:
    command: [{python}, consumer.py, {hold}, "{url}"]
    gpuMemory: {memory}
{gpu}    replicas: {{min: 0, max: 1}}
    backlog:
      queue: {{http: {{url: "{url}", path: waiting, inFlight: working, completed: done}}}}
    scaleDownThreshold: {threshold:.0f}s
"""


def missing() -> list[str]:
    """Names the libraries that are not installed and without which this scene cannot be played."""
    return [name for name in NEEDS if importlib.util.find_spec(name) is None]


def release(stage: Stage, only: Sequence[str], memory: str, hold: str) -> Iterable[Check]:
    """Yields the checks. `only` are the options that choose two GPUs that nobody uses; empty if there are no
    others.
    """
    queue = MessageQueue()
    try:
        yield from _Scene(stage, queue, only).play(memory, hold)
    finally:
        queue.close()


class _Scene:
    def __init__(self, stage: Stage, queue: MessageQueue, only: Sequence[str]) -> None:
        self._stage, self._screen, self._queue, self._only = stage, stage.screen, queue, only

    def play(self, memory: str, hold: str) -> Iterable[Check]:
        self._screen.say(
            "`a` is a worker with a queue, `b` needs both GPUs whole. `cotenant up` gives `a` the replicas "
            f"that its queue needs, and takes the last one away after {THRESHOLD:.0f} s without work."
        )
        text = _FILE.format(
            python=os.path.basename(sys.executable),
            hold=hold,
            url=self._queue.url,
            memory=memory,
            gpu=f"    gpu: [{self._only[1]}]\n" if self._only else "",
            threshold=THRESHOLD,
        )
        self._stage.write("workloads.yaml", text)
        self._screen.typed("cat workloads.yaml")
        for line in text.splitlines():
            self._screen.heard(line)
        up = self._stage.start("up", "workloads.yaml")
        until(lambda: self._scaler().get("state") == "Idle", "`cotenant up` has read the queue", pause=0.2)
        self._queue.put(2)
        until(lambda: self._queue.done == 2, "two messages are worked on")
        idle_since = time.monotonic()
        b = self._stage.run_whole("b", 2, *self._only)
        until(lambda: bool(self._runs("b")), "`b` runs", pause=0.1)
        took = time.monotonic() - idle_since
        waited = self._waited(b)
        left = self._runs("a-1")
        self._tell(up)
        self._screen.heard(waited)
        yield Check(
            "to zero and back",
            "`b` waits while `a` holds a GPU and idles",
            waited.removeprefix("cotenant: "),
            "1st in line" in waited,
        )
        yield Check(
            "",
            f"after {THRESHOLD:.0f} s of idleness `a` is at zero and `b` runs",
            f"{took:.1f} s after the last message; replicas of `a`: {len(left)}",
            THRESHOLD <= took <= THRESHOLD + MARGIN and not left,
        )
        yield self._come_back(b, up)

    def _come_back(self, b: Actor, up: Actor) -> Check:
        self._screen.say("A message for `a` comes while `b` has both GPUs. `a` waits in line.")
        self._queue.put(1)
        until(lambda: "in line" in self._scaler().get("reason", ""), "`a` waits for a GPU", pause=0.2)
        self._stage.show("scalers")
        place = self._scaler()["reason"].rpartition("; ")[2]
        b.answer()
        b.end()
        took = until(lambda: self._queue.done == 3, "the message is worked on")
        self._tell(up)
        self._stage.show("down")
        until(lambda: not self._stage.listing("ps")["grants"], "nothing runs any more", pause=0.2)
        up.finish()
        return Check(
            "",
            "a message brings `a` back as soon as `b` lets go",
            f"{place}; worked on {took:.1f} s after `b` had exited",
            "a-1 is 1st in line" in place and self._queue.figures()["waiting"] == 0,
        )

    def _waited(self, b: Actor) -> str:
        with contextlib.suppress(IndexError):
            return b.errors().splitlines()[0]
        return "it has not waited"

    def _runs(self, name: str) -> list[dict[str, Any]]:
        return [grant for grant in self._stage.listing("ps")["grants"] if grant["name"] == name]

    def _scaler(self) -> dict[str, Any]:
        found = self._stage.listing("scalers")["scalers"]
        return found[0] if found else {}

    def _tell(self, up: Actor) -> None:
        """Prints what `cotenant up` has said since the last time."""
        for line in up.new_lines():
            self._screen.heard(line)
