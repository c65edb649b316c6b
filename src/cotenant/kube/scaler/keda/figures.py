"""Reads what a GpuScaler has decided from its status, and wakes those who wait for another decision.

The leader decides and writes the status; every server watches it. So any server can answer, a restart
interrupts nothing, and nothing but what was decided is ever reported. A decision that cannot be trusted is an
error: KEDA then leaves the replicas as they are, or takes the `fallback` of the ScaledObject.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cotenant.core.errors import CotenantError
from cotenant.core.scaling import State
from cotenant.kube.api.store import Change
from cotenant.kube.api.watcher import Watcher
from cotenant.kube.scaler.resource import GpuScaler

Key = tuple[str, str]
"""Namespace and name of a GpuScaler."""

WORDS = 200
"""Characters of a GpuScaler's own words that are passed on to KEDA, which shows them in an event."""


class UnknownScaler(CotenantError):
    """There is no such GpuScaler."""


class ActsItself(CotenantError):
    """The GpuScaler changes replicas itself: KEDA must not do the same."""


class NotDecided(CotenantError):
    """There is no decision, or it may be out of date."""


class Figures:
    """Looks up decisions by namespace and name."""

    def __init__(self, scalers: Watcher[GpuScaler], led: Callable[[], bool]) -> None:
        self._scalers, self._led = scalers, led
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        scalers.store.subscribe(self._wake)

    def current(self, key: Key) -> int:
        """Returns the replicas that were decided on, if somebody keeps the decision up to date."""
        if not self._scalers.synced:
            raise NotDecided("this server has not yet read the GpuScalers")
        if self._scalers.trouble is not None:
            raise NotDecided(f"this server does not see the GpuScalers now: {self._scalers.trouble}")
        replicas = self.decided(key)
        if not self._led():
            raise NotDecided(f"{_called(key)}: no server leads, so nothing is decided now")
        return replicas

    def decided(self, key: Key) -> int:
        """Returns the replicas that were last decided on."""
        namespace, name = key
        scaler = self._scalers.store.named(name, namespace)
        if scaler is None:
            raise UnknownScaler(
                f"{_called(key)}: there is none; create it in the namespace of the ScaledObject, "
                "or correct metadata.gpuScaler of the trigger"
            )
        if scaler.spec.get("mode", "act") != "observe":
            raise ActsItself(
                f"{_called(key)}: its mode is act, so it changes the replicas itself; "
                "set spec.mode to observe where KEDA is to do that"
            )
        status = scaler.status
        if status.desired is None or not status.state:
            raise NotDecided(f"{_called(key)}: nothing is decided{_said(status.message)}")
        if status.state == State.NO_METRIC:
            raise NotDecided(f"{_called(key)}: its queue cannot be read{_said(status.message)}")
        return status.desired

    @contextmanager
    def following(self, key: Key) -> Iterator[asyncio.Event]:
        """Gives an event that is set at each change of the GpuScaler, also when it is created or deleted."""
        changed = asyncio.Event()
        self._waiting.setdefault(key, set()).add(changed)
        try:
            yield changed
        finally:
            waiting = self._waiting[key]
            waiting.discard(changed)
            if not waiting:
                del self._waiting[key]

    def wake_all(self) -> None:
        for waiting in self._waiting.values():
            for changed in waiting:
                changed.set()

    def _wake(self, change: Change[GpuScaler]) -> None:
        meta = change.object.metadata
        for changed in self._waiting.get((meta.namespace, meta.name), ()):
            changed.set()


def _called(key: Key) -> str:
    return f"GpuScaler {key[0]}/{key[1]}"


def _said(message: str) -> str:
    return f": {message[:WORDS]}" if message else ""
