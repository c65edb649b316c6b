"""Exports what GpuScalers have decided as metrics."""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.kube.scaler.scaled import Scaled
from cotenant.observe.exposition import Registry, gauge
from cotenant.observe.metrics import Metric


class ScalerMetrics:
    def __init__(self, registry: Registry) -> None:
        self._backlog = gauge(Metric.SCALER_BACKLOG, registry)
        self._desired = gauge(Metric.SCALER_DESIRED, registry)
        self._state = gauge(Metric.SCALER_STATE, registry)
        self._round = gauge(Metric.SCALER_ROUND, registry)
        self._shown: dict[tuple[str, str], str] = {}
        """Namespace and name, to the state that is exported."""

    def took(self, seconds: float) -> None:
        self._round.set(seconds)

    def show(self, known: Iterable[Scaled]) -> None:
        there = set[tuple[str, str]]()
        for one in known:
            shown, meta = one.shown, one.scaler.metadata
            key = meta.namespace, meta.name
            if shown is None:
                continue
            there.add(key)
            state = shown.state or (shown.trouble[0] if shown.trouble is not None else "Unknown")
            before = self._shown.get(key)
            if before not in {None, state}:
                self._state.remove(*key, before)
            self._shown[key] = state
            self._state.labels(*key, state).set(1)
            self._backlog.labels(*key).set(float("nan") if shown.backlog is None else shown.backlog)
            self._desired.labels(*key).set(float("nan") if shown.desired is None else shown.desired)
        for key in [key for key in self._shown if key not in there]:
            self._drop(key)

    def clear(self) -> None:
        """Exports nothing: this server leads no longer."""
        for key in list(self._shown):
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        self._state.remove(*key, self._shown.pop(key))
        self._backlog.remove(*key)
        self._desired.remove(*key)
