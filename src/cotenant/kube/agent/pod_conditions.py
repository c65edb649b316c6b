"""Writes a condition of pods: a few at a time, and each pod with a pause of its own after a failure.

What is wanted is decided by the caller, who compares it with `shown` at every look. So an agent that is
killed between its look and its write leaves nothing undone: the next one finds the same difference. One that
is killed after the write finds none.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError, NotFound
from cotenant.kube.api.objects import Condition, Pod, find_condition
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import Resource
from cotenant.kube.api.store import Store
from cotenant.kube.api.timestamps import timestamp
from cotenant.kube.logs import get_logger

log = get_logger(__name__)

_AT_ONCE = 20
"""Writes after one look; those that are left come after the next one."""
_SIDE_BY_SIDE = 4
_WITHIN = 8.0
"""Seconds for one write."""
_SHOWN = 10.0
"""Seconds after a write in which a state of the pod that the watch still delivers is taken for older."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
"""Seconds before a write that failed is tried again. Each pod has its own pause: one that cannot be written,
such as an object at the size limit of etcd, does not delay the others. Where nobody answers, an urgent write
is tried again after the first: when the API server is back, somebody may act on what is shown.
"""


@dataclass(frozen=True, slots=True)
class ConditionWrite:
    """A condition to write, with its `last_transition_time`."""

    pod: Pod
    condition: Condition
    urgent: bool = False
    """Whether somebody may act on what is shown now, which is not so."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid


@dataclass
class ConditionWriter:
    """Writes the condition of one type."""

    type: str
    client: Client
    pods: Store[Pod]
    resource: Resource[Pod]
    """How pods are watched: what a write returns is kept in the same form."""
    wrote: Callable[[ConditionWrite], None] = lambda _: None
    """Called after each write; not if the pod was gone."""
    clock: Callable[[], float] = time.monotonic
    random: Random = field(default_factory=Random, repr=False)
    trouble: KubeError | None = field(default=None, init=False)
    """Why a write failed; None if all of the last ones succeeded."""
    _written: dict[str, tuple[float, Condition]] = field(default_factory=dict, init=False)
    _failed: dict[str, tuple[float, Backoff]] = field(default_factory=dict, init=False)
    """Until when a pod is not tried again."""

    def keep(self, uids: Container[str]) -> None:
        """Forgets all other pods."""
        self._written = {uid: each for uid, each in self._written.items() if uid in uids}
        self._failed = {uid: each for uid, each in self._failed.items() if uid in uids}

    def shown(self, pod: Pod) -> Condition | None:
        """Returns the condition as it was last written or read, whichever is later."""
        at, written = self._written.get(pod.metadata.uid, (-math.inf, None))
        if written is not None and self.clock() - at < _SHOWN:
            return written
        return find_condition(pod.status.conditions, self.type)

    def seconds_since_write(self, uid: str) -> float:
        return self.clock() - self._written.get(uid, (-math.inf,))[0]

    def is_put_off(self, uid: str) -> bool:
        """Whether the pod's last write failed, and its pause is not over."""
        return self._failed.get(uid, (-math.inf,))[0] > self.clock()

    async def write(self, writes: Iterable[ConditionWrite]) -> set[str]:
        """Writes the first ones; returns the UIDs of the pods that were written, or are gone. If nobody
        answers, the others are not even tried.
        """
        slots, done = asyncio.Semaphore(_SIDE_BY_SIDE), set[str]()
        errors: list[KubeError] = []

        async def one(write: ConditionWrite) -> None:
            async with slots:
                if errors and errors[-1].code == 0:
                    return
                try:
                    await self._patch(write)
                    done.add(write.uid)
                    self._failed.pop(write.uid, None)
                except KubeError as error:
                    errors.append(error)
                    self._put_off(write, error)

        first = list(islice(writes, _AT_ONCE))
        await asyncio.gather(*map(one, first))
        if first:
            self._note(errors[0] if errors else None)
        return done

    def _put_off(self, write: ConditionWrite, error: KubeError) -> None:
        backoff = self._failed.get(write.uid, (0.0, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self.random)))[1]
        pause = backoff.next(error.retry_after)
        if write.urgent and error.code == 0:
            pause = min(pause, _FIRST_PAUSE)
        self._failed[write.uid] = (self.clock() + pause, backoff)

    def _note(self, trouble: KubeError | None) -> None:
        if trouble is not None and type(trouble) is not type(self.trouble):
            log.warning("condition of pods not written", condition=self.type, error=trouble)
        elif trouble is None and self.trouble is not None:
            log.info("condition of pods written again", condition=self.type)
        self.trouble = trouble

    async def _patch(self, write: ConditionWrite) -> None:
        """Writes it, unless the pod is gone or was replaced."""
        meta, condition = write.pod.metadata, write.condition
        try:
            made = await self.client.merge_patch(
                self.resource,
                meta.name,
                {"status": {"conditions": [_body(condition)]}},
                meta.namespace,
                guard=Guard(meta.uid),
                subresource="status",
                within=_WITHIN,
                strategic=True,
            )
        except (NotFound, Conflict):
            return
        self._written[meta.uid] = (self.clock(), condition)
        self.wrote(write)
        self.pods.put(made)
        log.info(
            "condition of pod written",
            namespace=meta.namespace,
            pod=meta.name,
            uid=meta.uid,
            condition=f"{self.type}={condition.status}",
            reason=condition.reason,
        )


def _body(condition: Condition) -> dict[str, str]:
    assert condition.last_transition_time is not None  # noqa: S101 -- the writer's caller sets it
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": timestamp(condition.last_transition_time),
    }
