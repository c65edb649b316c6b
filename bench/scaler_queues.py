"""Plays producers and workers of many queues in one Redis: lists of messages, and lists of those in work.

Messages come at random, one a second in each queue. As many are worked on at once as replicas are ready.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import redis

STEP = 0.1
"""Seconds between two looks at the queues."""
RATE = 1.0
"""Messages a second in each queue."""
TAKES = 0.8
"""Seconds of work on a message."""
COUNTING = 2.0
"""Seconds between two looks at the replicas."""


def waiting(name: str) -> str:
    return f"{name}:waiting"


def working(name: str) -> str:
    return f"{name}:working"


class Traffic:
    """A thread that sends, takes and completes the messages of some queues until it is stopped."""

    def __init__(self, port: int, names: Sequence[str], ready: Callable[[], Mapping[str, int]]) -> None:
        """`ready`: how many replicas each workload has now."""
        self.sent = self.done = 0
        self._redis = redis.Redis(port=port)
        self._names, self._ready = names, ready
        self._ends: dict[str, list[float]] = {name: [] for name in names}
        self._chance = random.Random(1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._redis.close()

    def _run(self) -> None:
        replicas, counted = self._ready(), time.monotonic()
        while not self._stop.wait(STEP):
            if time.monotonic() - counted > COUNTING:
                replicas, counted = self._ready(), time.monotonic()
            self._step(replicas, time.monotonic())

    def _step(self, replicas: Mapping[str, int], now: float) -> None:
        pipe = self._redis.pipeline(transaction=False)
        free = dict[str, int]()
        for name in self._names:
            left = [end for end in self._ends[name] if end > now]
            for _ in range(len(self._ends[name]) - len(left)):
                pipe.lpop(working(name))
                self.done += 1
            self._ends[name] = left
            if self._chance.random() < RATE * STEP:
                pipe.rpush(waiting(name), "message")
                self.sent += 1
            free[name] = max(0, replicas.get(name, 0) - len(left))
        pipe.execute()
        pipe = self._redis.pipeline(transaction=False)
        asked = [name for name, count in free.items() for _ in range(count)]
        for name in asked:
            pipe.lmove(waiting(name), working(name), "LEFT", "RIGHT")
        for name, taken in zip(asked, pipe.execute(), strict=True):
            if taken is not None:
                self._ends[name].append(now + TAKES)
