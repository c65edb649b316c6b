"""Reads the figures of a queue, or one figure, with PromQL: Prometheus, Thanos, Mimir, VictoriaMetrics.

An empty vector is not a zero: a query that always has a series lost it when its exporter went. Nor is NaN,
which `rate(a) / rate(b)` gives while nothing happens. Both are NoSample; `or vector(0)` makes a zero of it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from cotenant.signals.checking import HTTP
from cotenant.signals.http_client import Answer, http_access
from cotenant.signals.json_path import number
from cotenant.signals.servers import Servers
from cotenant.signals.signal import NoSample, Reading, Secrets, SignalError
from cotenant.signals.specification import PrometheusQuery, PrometheusQueue
from cotenant.signals.urls import parse_url

LONGEST_GET = 1500
"""Characters of a query that go into a URL; a longer one is sent as a form."""


class _Server:
    def __init__(self, spec: PrometheusQuery, secrets: Secrets, servers: Servers) -> None:
        url = parse_url(spec.url, HTTP)
        self._name = str(url)
        self._target = f"{url.path.rstrip('/')}/api/v1/query"
        self._headers = spec.headers or {}
        self._access = http_access(servers, secrets, url, spec, spec.token_from)

    async def ask(self, query: str) -> float:
        # Thanos leaves out what does not answer unless it is told not to; Prometheus ignores the parameter.
        asked = {"query": query, "timeout": "4s", "partial_response": "false"}
        short = len(query) <= LONGEST_GET
        async with self._access.client() as client:
            answer = await client.get(
                self._target,
                headers=self._headers,
                parameters=asked if short else None,
                form=None if short else asked,
            )
        return figure(self._document(answer), query)

    def _document(self, answer: Answer) -> dict[str, Any]:
        if answer.status == 404:
            raise SignalError(
                f"{self._name} has no /api/v1/query: is it Prometheus, and is the path in url right?"
            )
        document = answer.json(self._name)
        if not isinstance(document, dict) or document.get("status") not in ("success", "error"):
            raise SignalError(f"{self._name} does not answer as Prometheus does ({answer.status}): check url")
        return document

    async def close(self) -> None:
        await self._access.close()


def figure(document: dict[str, Any], query: str) -> float:
    """Returns the one figure of an answer to an instant query."""
    what = f"the query {_short(query)}"
    if document["status"] == "error":
        raise SignalError(
            f"{what} fails: {_short(document.get('error'))} ({_short(document.get('errorType'))})"
        )
    if warnings := document.get("warnings"):
        first = warnings[0] if isinstance(warnings, list) else warnings
        raise SignalError(f"{what} is not answered in full: {_short(first)}")
    data = document.get("data")
    kind, result = (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (None, None)
    if kind == "scalar":
        sample = result
    elif kind == "vector" and isinstance(result, list):
        if not result:
            raise NoSample(f"{what} has no series: if that means zero, append: or vector(0)")
        if len(result) > 1:
            raise SignalError(
                f"{what} has {len(result)} series: make one of them, such as sum({_short(query)})"
            )
        if isinstance(result[0], dict) and "histogram" in result[0]:
            raise SignalError(f"{what} gives a histogram: make a number of it, such as histogram_sum(...)")
        sample = result[0].get("value") if isinstance(result[0], dict) else None
    else:
        raise SignalError(
            f"{what} gives a {_short(kind)}: an instant vector of one series or a scalar is needed"
        )
    if not isinstance(sample, list) or len(sample) != 2 or not isinstance(sample[1], str):
        raise SignalError(f"{what} is answered in a form that Prometheus does not use")
    return number(sample[1], what)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 160 else f"{text[:160]}..."


class PrometheusSignal:
    """A queue whose figures are in Prometheus, asked all at once."""

    def __init__(self, spec: PrometheusQueue, secrets: Secrets, servers: Servers) -> None:
        self._spec, self._server = spec, _Server(spec, secrets, servers)

    async def read(self) -> Reading:
        spec = self._spec
        asked = [
            each for each in (spec.query, spec.in_flight, spec.arrived, spec.completed) if each is not None
        ]
        results = await asyncio.gather(*(self._server.ask(each) for each in asked), return_exceptions=True)
        at = time.time()
        found: dict[str, float] = {}
        for query, result in zip(asked, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            found[query] = result

        def of(query: str | None) -> float | None:
            return None if query is None else found[query]

        return Reading(at, found[spec.query], of(spec.arrived), of(spec.completed), of(spec.in_flight))

    async def close(self) -> None:
        await self._server.close()


class PrometheusFigure:
    """One figure in Prometheus."""

    def __init__(self, spec: PrometheusQuery, secrets: Secrets, servers: Servers) -> None:
        self._query, self._server = spec.query, _Server(spec, secrets, servers)

    async def read(self) -> float:
        return await self._server.ask(self._query)

    async def close(self) -> None:
        await self._server.close()
