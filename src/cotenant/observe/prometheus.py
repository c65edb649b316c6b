"""Asks Prometheus, or what answers like it (Thanos, Mimir, VictoriaMetrics), about stretches of time.

A long stretch is asked for in chunks, each small enough for the server's limits and for our memory. A chunk
that is too much for the server is halved and asked for again.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cotenant.core.errors import CotenantError

MOST_POINTS = 10_000
"""Of one series in one answer: Prometheus refuses more than 11,000."""
MOST_VALUES = 150_000
"""Of all series in one answer, about: some 5 MB of JSON, and ten times that as Python's objects."""
ATTEMPTS = 4
_PAUSE = 0.3
_TOO_MUCH = ("too many samples", "maximum resolution", "exceed", "limit", "timeout", "timed out", "too large")
"""Words by which servers say that a smaller question would be answered."""

Labels = Mapping[str, str]


class PrometheusFailed(CotenantError):
    """The server cannot be asked, or refuses; the message says why and what to do."""


class TooMuch(PrometheusFailed):
    """The server refuses because the answer would be too large or take too long: a part may be answered."""


class Unavailable(PrometheusFailed):
    """The server is not reached or overloaded: it may answer soon."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


class Transport(Protocol):
    """Fetches paths below the server's address."""

    @property
    def name(self) -> str:
        """The server, for messages."""

    async def get(self, path: str, query: Mapping[str, str]) -> Answer:
        """Fetches a path; TooMuch if the answer is too long, Unavailable if there is none."""


@dataclass(frozen=True, slots=True)
class Line:
    """One series in one stretch of time."""

    labels: Labels
    times: Sequence[float]
    values: Sequence[float]


async def instant(transport: Transport, query: str, at: float) -> list[tuple[Labels, float]]:
    """Returns the series of an instant vector; those without a number are left out."""
    data = await _data(transport, "/api/v1/query", {"query": query, "time": _stamp(at)}, "vector")
    found = []
    for each in data:
        labels, point = _labels(each, transport), each.get("value")
        if isinstance(point, list) and len(point) == 2 and (value := _number(point[1])) is not None:
            found.append((labels, value))
    return found


async def ranged(
    transport: Transport,
    query: str,
    first: float,
    end: float,
    step: float,
    series: int = 1,
    told: Callable[[float], None] | None = None,
) -> AsyncIterator[Line]:
    """Yields what the query is at every multiple of `step` from `first` to `end`: all series of one stretch
    of time, then those of the next.

    `series` is about how many there are; `told` gets the part that is done after each chunk.
    """
    points = max(1, min(MOST_POINTS, MOST_VALUES // max(1, series)))
    number, last = math.ceil(first / step), math.floor(end / step)
    began = number
    while number <= last:
        until = min(last, number + points - 1)
        asked = {
            "query": query,
            "start": _stamp(number * step),
            "end": _stamp(until * step),
            "step": _stamp(step),
        }
        try:
            data = await _data(transport, "/api/v1/query_range", asked, "matrix")
        except TooMuch:
            if until == number:
                raise
            points = (until - number + 1) // 2
            continue
        while data:  # each is let go as soon as it is read: as Python's objects they are large
            yield _line(data.pop(), transport)
        number = until + 1
        if told is not None:
            told((number - began) / (last - began + 1))


async def _data(transport: Transport, path: str, query: Mapping[str, str], kind: str) -> list[dict[str, Any]]:
    for attempt in range(ATTEMPTS):
        try:
            # Thanos leaves out what does not answer unless it is told not to; Prometheus ignores it.
            answer = await transport.get(path, {**query, "partial_response": "false"})
            return _result(transport, answer, kind, query["query"])
        except Unavailable:
            if attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(_PAUSE * 2**attempt)
    raise AssertionError


def _result(transport: Transport, answer: Answer, kind: str, query: str) -> list[dict[str, Any]]:
    name = transport.name
    if answer.status == 404:
        raise PrometheusFailed(f"{name} has no /api/v1/query: is it Prometheus, and is its path complete?")
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        document = None
    said = document.get("error") if isinstance(document, dict) else None
    if answer.status in {502, 503, 504, 429} or (said is None and answer.status >= 500):
        why = _short(said) if said else f"status {answer.status}"
        if answer.status == 503 and said and _is_too_much(said):
            raise TooMuch(f"{name}: {why}")
        raise Unavailable(f"{name} does not answer ({why}): try again later")
    if not isinstance(document, dict) or document.get("status") not in ("success", "error"):
        raise PrometheusFailed(
            f"{name} does not answer as Prometheus does ({answer.status}): check the address"
        )
    if document["status"] == "error":
        message = f"{name} refuses the query {_short(query)}: {_short(said)}"
        if answer.status in {400, 413, 422} and _is_too_much(said):
            raise TooMuch(message)
        raise PrometheusFailed(message)
    data = document.get("data")
    result = data.get("result") if isinstance(data, dict) and data.get("resultType") == kind else None
    if not isinstance(result, list) or not all(isinstance(each, dict) for each in result):
        raise PrometheusFailed(f"{name} answers no {kind} to {_short(query)}: is it Prometheus?")
    if document.get("warnings"):
        # What is missing would make advice too low.
        first = document["warnings"][0] if isinstance(document["warnings"], list) else document["warnings"]
        raise Unavailable(f"{name} does not answer in full: {_short(first)}")
    return result


def _is_too_much(said: object) -> bool:
    text = str(said).lower()
    return any(each in text for each in _TOO_MUCH)


def _line(each: Mapping[str, Any], transport: Transport) -> Line:
    labels, points = _labels(each, transport), each.get("values", ())
    try:
        times = [float(at) for at, _ in points]
        values = [float(text) for _, text in points]
    except (TypeError, ValueError):
        raise PrometheusFailed(f"{transport.name} answers in a form that Prometheus does not use") from None
    if not math.isfinite(sum(values)):
        kept = [number for number, value in enumerate(values) if math.isfinite(value)]
        times, values = [times[number] for number in kept], [values[number] for number in kept]
    return Line(labels, times, values)


def _labels(each: Mapping[str, Any], transport: Transport) -> Labels:
    labels = each.get("metric")
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise PrometheusFailed(f"{transport.name} answers in a form that Prometheus does not use")
    return labels


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _stamp(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def _short(value: object) -> str:
    text = "".join(sign if sign.isprintable() else " " for sign in str(value))
    text = " ".join(text.split())
    return text if len(text) <= 200 else f"{text[:200]}..."
