"""Records events on pods and workloads: what `kubectl describe` shows of one that waits, with figures.

There is one event object for each object and reason, whose text and count change. Each is written at most
once a minute, unless the caller wants every one, and only if the API server has time: events are for people,
nothing depends on them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import KubeError
from cotenant.kube.api.informers import Need
from cotenant.kube.api.objects import HasMeta, Pod
from cotenant.kube.api.resources import EVENTS, PODS, Resource
from cotenant.kube.api.store import Change
from cotenant.kube.api.timestamps import timestamp
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.part import Context, Part
from cotenant.kube.pods.fields import PodFields
from cotenant.kube.settings import Settings

log = get_logger(__name__)

COMPONENT = "cotenant"
PAUSE = 60.0
"""Seconds between two writes about the same thing."""
AT_ONCE = 4
LONGEST_NAME = 253
LONGEST_MESSAGE = 1024
"""Characters, as Kubernetes has it."""
MOST = 1000
"""Events that wait to be written; more are dropped."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """Whom an event is about. The object itself is not kept: it comes with all its annotations."""

    namespace: str
    name: str
    api_version: str
    kind: str
    type: str

    @classmethod
    def of(cls, object: HasMeta, resource: Resource[Any], type: str) -> _Subject:
        meta = object.metadata
        return cls(meta.namespace, meta.name, resource.api_version, resource.kind, type)


@dataclass
class _Told:
    since: datetime
    at: float
    count: int = 1


@dataclass
class EventRecorder:
    """`run()` writes what `record` was given until it is cancelled."""

    client: Client
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    _told: dict[tuple[str, str], _Told] = field(default_factory=dict)
    _waiting: dict[tuple[str, str], tuple[_Subject, str | Callable[[], str]]] = field(default_factory=dict)
    _some: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def record(
        self,
        object: HasMeta,
        reason: str,
        message: str | Callable[[], str],
        resource: Resource[Any] = PODS,
        *,
        normal: bool = False,
        each: bool = False,
    ) -> None:
        """Queues an event about an object, a pod unless `resource` says otherwise. `message` is worked out
        only if it is written. `each`: this one is written also if another was a moment ago.
        """
        key = (object.metadata.uid, reason)
        told = self._told.get(key)
        if told is not None and not each and self.clock() - told.at < PAUSE:
            return
        if len(self._waiting) < MOST:
            subject = _Subject.of(object, resource, "Normal" if normal else "Warning")
            self._waiting[key] = (subject, _cut(message))
            self._some.set()

    async def record_now(self, object: HasMeta, reason: str, message: str) -> None:
        """Writes an event about a pod before it returns: the pod may be gone a moment later, and what waits
        to be written about it with it.
        """
        subject = _Subject.of(object, PODS, "Warning")
        await self._write(subject, (object.metadata.uid, reason), message)

    def forget(self, uid: str) -> None:
        for about in (self._told, self._waiting):
            for key in [key for key in about if key[0] == uid]:
                del about[key]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as writers:
            for _ in range(AT_ONCE):
                writers.create_task(self._write_all())

    async def _write_all(self) -> None:
        while True:
            if not self._waiting:
                self._some.clear()
                await self._some.wait()
                continue
            key = next(iter(self._waiting))
            subject, message = self._waiting.pop(key)
            try:
                text = message if isinstance(message, str) else message()
            except KeyError:
                continue  # it does not wait any more
            except Exception:  # whatever it is, the server must not end by it
                log.exception(
                    "event cannot be worded", namespace=subject.namespace, name=subject.name, uid=key[0]
                )
                continue
            await self._write(subject, key, text)

    async def _write(self, subject: _Subject, key: tuple[str, str], text: str) -> None:
        uid, reason = key
        now = self.wall()
        told = self._told.get(key)
        told = _Told(now, self.clock()) if told is None else _Told(told.since, self.clock(), told.count + 1)
        self._told[key] = told
        body = {
            "metadata": {"name": _name(subject.name, uid, reason)},
            "involvedObject": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": uid,
            },
            "type": subject.type,
            "reason": reason,
            "message": text[:LONGEST_MESSAGE],
            "count": told.count,
            "firstTimestamp": timestamp(told.since),
            "lastTimestamp": timestamp(now),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": COMPONENT,
        }
        try:
            await self.client.apply(EVENTS, body, COMPONENT, subject.namespace, force=True, within=5.0)
        except KubeError as error:
            log.debug(
                "event not recorded", namespace=subject.namespace, name=subject.name, uid=uid, error=error
            )


def _cut(message: str | Callable[[], str]) -> str | Callable[[], str]:
    return message[:LONGEST_MESSAGE] if isinstance(message, str) else message


def _name(name: str, uid: str, reason: str) -> str:
    """Returns the event's name; the object's own may be as long as a name can be."""
    rest = f".{uid[:8].lower()}.{reason.lower()}"
    return name[: LONGEST_NAME - len(rest)].rstrip("-.") + rest


class Events(Part):
    """Writes events, as a part of the server; shares the EventRecorder."""

    name = "events"

    def __init__(self, context: Context) -> None:
        self._recorder = context.share(EventRecorder(context.client))
        context.informers[PODS].store.subscribe(self._on_pod)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        del settings
        return (Need(PODS, PodFields()),)

    async def run(self) -> None:
        await self._recorder.run()

    def _on_pod(self, change: Change[Pod]) -> None:
        if change.kind == "deleted":
            self._recorder.forget(change.object.metadata.uid)
