"""Follows the objects below a path of the API: each as it is, then each change, until the caller has enough."""

import contextlib
import http.client
import threading
from collections.abc import Iterator

from cluster.testbed.api import Api, Object, Refused

LOST = (OSError, http.client.HTTPException, ValueError)
"""What a request fails by when the API server is away."""
_WATCH = 5
"""Seconds of one watch: how long the end may take."""


def follow(api: Api, path: str, closed: threading.Event) -> Iterator[Object]:
    """Yields objects, also those that are deleted, as they were last. Changes between two watches are not lost; while the
    API server is away, those that it does not keep are.
    """
    while not closed.is_set():
        with contextlib.suppress(Refused, *LOST):
            yield from _changes(api, path, closed)
        closed.wait(0.1)
    api.close()


def _changes(api: Api, path: str, closed: threading.Event) -> Iterator[Object]:
    listed = api.get(path)
    yield from listed["items"]
    version = listed["metadata"]["resourceVersion"]
    while not closed.is_set():
        for event in api.watch(path, _WATCH, resourceVersion=version):
            if event["type"] == "ERROR":
                return
            version = event["object"]["metadata"]["resourceVersion"]
            yield event["object"]
