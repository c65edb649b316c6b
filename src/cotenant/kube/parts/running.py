"""Runs parts, and names the one that ends or fails in the log, in readiness and in a metric."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.part import Part
from cotenant.observe.exposition import Registry, counter, gauge
from cotenant.observe.metrics import Metric

log = get_logger(__name__)

LINGER = 3.0
"""Seconds for which readiness still says which part has failed, before the process exits."""


class PartFailed(CotenantError):
    """A part ended; the message says which one, and why."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(f"part {part} {why}")
        self.part, self.why = part, why


@dataclass
class Failures:
    """Remembers which parts have failed and why, for readiness."""

    registry: Registry
    why: dict[str, str] = field(default_factory=dict)
    """Parts whose end ends the process."""
    in_term: dict[str, str] = field(default_factory=dict)
    """Parts whose failure ended the last term; the process goes on."""

    def __post_init__(self) -> None:
        self._failures = counter(Metric.PART_FAILURES, self.registry)
        self._ready = gauge(Metric.PART_READY, self.registry)

    def expect(self, part: Part) -> None:
        """Exports a part's metrics from the start: no alert sees a series that begins with a failure."""
        self._failures.labels(part.name)
        self._ready.labels(part.name).set_function(lambda: self.reason(part) is None)

    def reason(self, part: Part) -> str | None:
        """Says why a part is not ready."""
        return self.why.get(part.name) or self.in_term.get(part.name) or part.ready()

    def note(self, failure: PartFailed) -> None:
        self.why[failure.part] = failure.why
        self._failures.labels(failure.part).inc()

    def note_in_term(self, failure: PartFailed) -> None:
        self.in_term[failure.part] = failure.why
        self._failures.labels(failure.part).inc()


Note = Callable[[PartFailed], None]


async def supervise(name: str, work: Coroutine[Any, Any, None], note: Note) -> None:
    """Runs a part's work, which has no end of its own: raises PartFailed when it returns or raises."""
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        failure = PartFailed(name, "was cancelled by something that it awaited")
        log.exception("part failed", part=name)
    except Exception as error:
        cause = _first(error)
        if isinstance(cause, CotenantError):
            failure = PartFailed(name, f"failed: {cause}")
            log.error("part failed", part=name, error=str(cause))  # noqa: TRY400 - the message says it all
        else:
            failure = PartFailed(name, f"failed: {cause!r}")
            log.exception("part failed", part=name)
        failure.__cause__ = error
    else:
        failure = PartFailed(name, "ended")
        log.error("part ended", part=name)
    note(failure)
    raise failure


def _first(error: BaseException) -> BaseException:
    """Finds the error that brought the others about: one with a message for people, if there is any."""
    while isinstance(error, BaseExceptionGroup):
        error = (error.subgroup(CotenantError) or error).exceptions[0]
    return error


async def run_all(work: Iterable[tuple[str, Coroutine[Any, Any, None]]], note: Note) -> None:
    """Runs parts side by side until one of them fails; PartFailed says which."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for name, each in work:
                tasks.create_task(supervise(name, each, note), name=name)
    except* PartFailed as group:
        raise _first(group) from None
