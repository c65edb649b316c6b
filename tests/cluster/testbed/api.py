"""A plain client of the API server for tests. It shares nothing with the product's own, so that it can judge it."""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from .certificates import Pair

Object = dict[str, Any]

PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}

ACTING = (
    "/apis/cotenant.dev/v1alpha1/{}/gpuscalers",
    "/apis/autoscaling/v2/{}/horizontalpodautoscalers",
    "/apis/apps/v1/{}/deployments",
    "/apis/apps/v1/{}/statefulsets",
    "/apis/apps/v1/{}/daemonsets",
    "/apis/batch/v1/{}/jobs",
    "/apis/apps/v1/{}/replicasets",
    "/api/v1/{}/pods",
)
"""What runs or makes others run, those that make before those that are made."""


def pause(began: float) -> None:
    """Between two looks at what somebody waits for since `began`: those who wait long ask less often. Twenty questions a second, by
    every test that waits, were a good part of the API server's work.
    """
    time.sleep(min(0.25, 0.05 + 0.05 * (time.monotonic() - began)))


class Connection(http.client.HTTPSConnection):
    """Is closed with the thread that had it."""

    def __del__(self) -> None:
        self.close()


class Refused(Exception):
    """The API server's answer, where it is not yes."""

    def __init__(self, code: int, status: Object) -> None:
        super().__init__(f"{code} {status.get('reason', '')}: {status.get('message', status)}")
        self.code = code
        self.status = status


class Api:
    """One connection a thread, kept open: 5,000 nodes are made over a handful of them."""

    def __init__(
        self, host: str, authority: Path, client: Pair | None = None, token: str | None = None
    ) -> None:
        self._host = host
        self._context = ssl.create_default_context(cafile=str(authority))
        if client:
            self._context.load_cert_chain(client.certificate, client.key)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._local = threading.local()

    def get(self, path: str, **query: str) -> Any:
        return self.request("GET", path, query=query)

    def create(self, path: str, body: Object) -> Object:
        made: Object = self.request("POST", path, body)
        return made

    def replace(self, path: str, body: Object) -> Object:
        made: Object = self.request("PUT", path, body)
        return made

    def patch(self, path: str, body: Any, kind: str = "merge", **query: str) -> Object:
        made: Object = self.request("PATCH", path, body, content=PATCHES[kind], query=query)
        return made

    def delete(self, path: str, **options: Any) -> Any:
        return self.request("DELETE", path, options or None)

    def empty(self, namespace: str) -> None:
        """Deletes what runs in a namespace, as its end would. The namespace stays, with what harms nobody: its end asks for every
        kind of object that there is, which takes 0.3 s of CPU time.
        """
        for path in ACTING:
            try:
                self.delete(path.format(f"namespaces/{namespace}"), propagationPolicy="Background")
            except Refused as refused:
                if refused.code != 404:  # a kind that nobody has defined
                    raise
        labels = self.get(f"/api/v1/namespaces/{namespace}")["metadata"]["labels"]
        own = dict.fromkeys(name for name in labels if name != "kubernetes.io/metadata.name")
        if own:  # the whole cluster is judged by them
            self.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": own}})

    def items(self, path: str, **query: str) -> list[Object]:
        found: list[Object] = self.get(path, **query)["items"]
        return found

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Any:
        sent = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": content, "Accept": "application/json", **self._headers}
        target = path + ("?" + urlencode(query) if query else "")
        try:
            response = self._send(method, target, sent, headers)
            received = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        decoded = _decoded(received)
        if response.status >= 300:
            raise Refused(response.status, decoded if isinstance(decoded, dict) else {"message": decoded})
        return decoded

    def _send(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """A connection that the server closed while it was idle is opened again, once."""
        kept = getattr(self._local, "connection", None)
        if kept is not None:
            try:
                kept.request(method, target, body, headers)
                answer: http.client.HTTPResponse = kept.getresponse()
            except (OSError, http.client.HTTPException):
                self.close()
            else:
                return answer
        self._local.connection = Connection(self._host, context=self._context, timeout=120)
        self._local.connection.request(method, target, body, headers)
        fresh: http.client.HTTPResponse = self._local.connection.getresponse()
        return fresh

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """This thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def watch(self, path: str, seconds: int = 300, **query: str) -> Iterator[Object]:
        """Events as they come, until the server ends the watch."""
        connection = http.client.HTTPSConnection(self._host, context=self._context, timeout=seconds + 10)
        asked = {"watch": "1", "timeoutSeconds": str(seconds), **query}
        try:
            connection.request(
                "GET", f"{path}?{urlencode(asked)}", headers={"Accept": "application/json", **self._headers}
            )
            response = connection.getresponse()
            if response.status >= 300:
                raise Refused(response.status, json.loads(response.read()))
            for line in response:
                yield json.loads(line)
        finally:
            connection.close()

    def until(self, path: str, done: Callable[[Object], bool], seconds: float = 60) -> Object:
        """The object, once `done` says so of it; a missing one is waited for too."""
        began = time.monotonic()
        seen: Object | None = None
        while time.monotonic() < began + seconds:
            try:
                seen = self.get(path)
                if seen is not None and done(seen):
                    return seen
            except Refused as refused:
                if refused.code != 404:
                    raise
            pause(began)
        raise AssertionError(
            f"{path} was not as expected after {seconds} s: {json.dumps((seen or {}).get('status'))}"
        )

    def until_gone(self, path: str, seconds: float = 60) -> None:
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            try:
                self.get(path)
            except Refused as refused:
                if refused.code == 404:
                    return
                raise
            pause(began)
        raise AssertionError(f"{path} was still there after {seconds} s")


def _decoded(received: bytes) -> Any:
    """Logs and health are text; everything else is JSON."""
    try:
        return json.loads(received)
    except ValueError:
        return received.decode(errors="replace")
