"""Reads the figures of a queue, or one figure, from a JSON document that is fetched over HTTP."""

from __future__ import annotations

import time
from typing import Any

from cotenant.signals.checking import HTTP
from cotenant.signals.http_client import http_access
from cotenant.signals.json_path import find, number, parse_path
from cotenant.signals.servers import Servers
from cotenant.signals.signal import Reading, Secrets, SignalError
from cotenant.signals.specification import HttpQuery, HttpQueue
from cotenant.signals.urls import parse_url


class _Document:
    """One JSON document of one server."""

    def __init__(self, spec: HttpQuery, secrets: Secrets, servers: Servers) -> None:
        url = parse_url(spec.url, HTTP)
        self._name = str(url)
        self._target = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
        self._headers = spec.headers or {}
        self._access = http_access(servers, secrets, url, spec, spec.token_from)

    async def fetch(self) -> Any:
        async with self._access.client() as client:
            answer = await client.get(self._target, headers=self._headers)
        if answer.status != 200:
            raise SignalError(f"{self._name} answers {answer.status}: 200 and a JSON document are needed")
        return answer.json(self._name)

    def figure(self, document: Any, path: str) -> float:
        what = f"{path} of {self._name}"
        return number(find(document, parse_path(path, "path"), what), what)

    async def close(self) -> None:
        await self._access.close()


class HttpSignal:
    """A queue whose figures are in one JSON document."""

    def __init__(self, spec: HttpQueue, secrets: Secrets, servers: Servers) -> None:
        self._spec, self._document = spec, _Document(spec, secrets, servers)

    async def read(self) -> Reading:
        document = await self._document.fetch()
        at = time.time()
        spec = self._spec
        backlog, in_flight, arrived, completed = (
            None if path is None else self._document.figure(document, path)
            for path in (spec.path, spec.in_flight, spec.arrived, spec.completed)
        )
        return Reading(at, backlog, arrived, completed, in_flight)

    async def close(self) -> None:
        await self._document.close()


class HttpFigure:
    """One figure in a JSON document."""

    def __init__(self, spec: HttpQuery, secrets: Secrets, servers: Servers) -> None:
        self._spec, self._document = spec, _Document(spec, secrets, servers)

    async def read(self) -> float:
        return self._document.figure(await self._document.fetch(), self._spec.path)

    async def close(self) -> None:
        await self._document.close()
