"""Guesses a pod's workload from the pod's name, where nothing tells it.

Controllers make names of pods by rules: `web-7d9f8c6b5d-x7k2p` is of the Deployment `web` (the hash is that
of its template, so it tells versions apart), `web-3` of the StatefulSet `web`, `web-x7k2p` of a Job, a
DaemonSet or a bare ReplicaSet. Letters of hashes are consonants and digits that make no words.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_DEPLOYMENT = re.compile(rf"(.+)-([{_SAFE}]{{6,10}})-[{_SAFE}]{{5}}")
_CRON_JOB = re.compile(rf"(.+)-[0-9]{{8,10}}-[{_SAFE}]{{5}}")
_STATEFUL_SET = re.compile(r"(.+)-[0-9]{1,5}")
_OTHER = re.compile(rf"(.+)-[{_SAFE}]{{5}}")


class PodWorkload(NamedTuple):
    """What a pod belongs to."""

    kind: str
    """In lower case, such as `deployment`; `pods` if the kind cannot be told."""
    name: str
    version: str = ""
    """Of its template; empty if that is not known."""

    def of(self, namespace: str) -> str:
        """Names the workload in one text."""
        return f"{namespace}/{self.kind}/{self.name}"


def workload_of(pod: str) -> PodWorkload:
    """Returns the workload that most likely has a pod of this name."""
    if found := _CRON_JOB.fullmatch(pod):
        return PodWorkload("cronjob", found[1])
    if found := _DEPLOYMENT.fullmatch(pod):
        return PodWorkload("deployment", found[1], found[2])
    if found := _STATEFUL_SET.fullmatch(pod):
        return PodWorkload("statefulset", found[1])
    if found := _OTHER.fullmatch(pod):
        return PodWorkload("pods", found[1])
    return PodWorkload("pod", pod)
