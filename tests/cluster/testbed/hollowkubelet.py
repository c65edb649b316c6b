"""Plays the kubelet of all hollow nodes: a bound pod runs at once, a deleted one is gone at once.

A process of its own (`python -m cluster.testbed.hollowkubelet`), so that it takes no time from the one that
tests or measures. It lists anew whenever its watch ends, so it outlives the API server.
"""

import contextlib
import http.client
import queue
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from .api import Api, Object, Refused
from .certificates import Pair
from .hollow import PREFIX

PODS = "/api/v1/pods"
THREADS = 6
LOST = (OSError, http.client.HTTPException, ValueError)


def status(pod: Object) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    containers = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for each in pod["spec"]["containers"]
    ]
    return {
        "status": {
            "phase": "Running",
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": containers,
        }
    }


class HollowKubelet:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._work: queue.SimpleQueue[Object] = queue.SimpleQueue()

    def run(self) -> None:
        for _ in range(THREADS):
            threading.Thread(target=self._serve, daemon=True).start()
        while True:
            with contextlib.suppress(Refused, *LOST):
                self._follow()
            time.sleep(0.1)

    def _follow(self) -> None:
        listed = self._api.get(PODS)
        for pod in listed["items"]:
            self._consider(pod)
        version = listed["metadata"]["resourceVersion"]
        print("following", flush=True)
        for event in self._api.watch(PODS, resourceVersion=version, fieldSelector="spec.nodeName!="):
            if event["type"] == "ERROR":
                return
            if event["type"] != "DELETED":
                self._consider(event["object"])

    def _consider(self, pod: Object) -> None:
        ours = pod["spec"].get("nodeName", "").startswith(PREFIX)
        leaving = "deletionTimestamp" in pod["metadata"]
        if ours and (leaving or pod["status"].get("phase") == "Pending"):
            self._work.put(pod)

    def _serve(self) -> None:
        while True:
            pod = self._work.get()
            try:
                self._act(pod)
            except Refused as refused:
                # Gone, another one of its name, or changed meanwhile: the watch tells of that too.
                if refused.code not in (404, 409):
                    print(pod["metadata"]["name"], refused, flush=True)
            except LOST:
                time.sleep(0.2)
                self._work.put(pod)

    def _act(self, pod: Object) -> None:
        named = pod["metadata"]
        path = f"/api/v1/namespaces/{named['namespace']}/pods/{named['name']}"
        if "deletionTimestamp" in named:
            self._api.delete(path, gracePeriodSeconds=0, preconditions={"uid": named["uid"]})
        else:
            # Guarded by what was seen: a pod that has ended meanwhile stays ended, as with every kubelet.
            seen = {"uid": named["uid"], "resourceVersion": named["resourceVersion"]}
            self._api.patch(f"{path}/status", {"metadata": seen, **status(pod)})


def main(host: str, authority: str, certificate: str, key: str) -> None:
    HollowKubelet(Api(host, Path(authority), Pair(Path(certificate), Path(key)))).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
