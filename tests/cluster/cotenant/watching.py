"""Watches objects of the API in the order in which the API server stored them, through its restarts."""

import http.client
import threading
import time
from collections.abc import Callable

from cluster.testbed.api import Api, Object, Refused

LOST = (OSError, http.client.HTTPException, ValueError)


def watch(
    api: Api,
    path: str,
    one: Callable[[Object, bool], None],
    listed: Callable[[list[Object]], None],
    stopped: threading.Event,
) -> None:
    """From where it was, as long as the API server knows that; else from a new list. `one` is called with each object that has
    changed, and whether it was deleted."""
    version = ""
    while not stopped.is_set():
        try:
            if not version:
                found = api.get(path)
                api.close()  # this thread's connection: a watch has one of its own
                listed(found["items"])
                version = found["metadata"]["resourceVersion"]
            for event in api.watch(path, resourceVersion=version, allowWatchBookmarks="true"):
                if event["type"] == "ERROR":
                    version = ""
                    break
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    one(event["object"], event["type"] == "DELETED")
        except Refused as refused:
            if refused.code == 410:
                version = ""
            time.sleep(0.05)
        except LOST:
            time.sleep(0.05)
