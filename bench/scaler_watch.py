"""Watches one server on a control plane: its rounds, CPU time and memory, and which objects it writes.

The API server's own audit log tells what is written, by whom and for which object.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.testbed import places
from cluster.testbed.component import Component

USER, METRICS, POLL = "cotenant-server", 8443, 2.0
"""Who the server is to the API server, where its metrics are, and the seconds between two rounds."""
AUDIT = places.STATE / "audit.log"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "users": [USER],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {"level": "None"},
    ],
}


@dataclass(frozen=True, slots=True)
class Phase:
    """What was seen of the server over some time."""

    rounds: list[float]
    """Seconds of each."""
    cpu: float
    """Part of one core."""
    memory: float
    """The most so far, in MiB."""
    written: Counter[tuple[str, str]]
    """Writes by the resource and the name of the object; without those of the Lease."""


def flags() -> list[str]:
    """Returns the API server's flags for an audit log of what the server writes."""
    policy = places.STATE / "audit.json"
    policy.write_text(json.dumps(POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={AUDIT}", "--audit-log-mode=blocking"]


class Watched:
    """The server, as the machine, its metrics and the audit log show it."""

    def __init__(self, server: Component) -> None:
        self.server = server
        context = ssl._create_unverified_context()  # noqa: SLF001
        self._connection = http.client.HTTPSConnection("127.0.0.1", METRICS, context=context, timeout=30)

    def round(self) -> float | None:
        """Returns the seconds of the last round; None before the first."""
        try:
            self._connection.request("GET", "/metrics")
            text = self._connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return None
        found = re.search(r"^cotenant_scaler_round_seconds (\S+)$", text, re.MULTILINE)
        return float(found[1]) or None if found else None

    def memory(self) -> float:
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.server.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def phase(self, seconds: float) -> Phase:
        """Follows it for some seconds. Reading its metrics is a part of what it does then."""
        since, cpu, began = logged(), self.cpu(), time.monotonic()
        rounds = list[float]()
        while (passed := time.monotonic() - began) < seconds:
            took = self.round()
            if took is not None and took not in rounds[-1:]:
                rounds.append(took)
            time.sleep(POLL * 0.9)
        return Phase(rounds[1:], (self.cpu() - cpu) / passed, self.memory(), written(since))


def logged() -> int:
    """Returns the bytes that the audit log has now."""
    return AUDIT.stat().st_size


def written(since: int) -> Counter[tuple[str, str]]:
    """Counts the server's writes that the audit log has after this many bytes."""
    found = Counter[tuple[str, str]]()
    with AUDIT.open("rb") as log:
        log.seek(since)
        for line in log:
            of = json.loads(line)["objectRef"]
            what = "/".join(each for each in (of["resource"], of.get("subresource")) if each)
            if what != "leases":
                found[what, of.get("name", "")] += 1
    return found


def until(what: str, done: Callable[[], bool], seconds: float) -> float:
    """Waits, and returns how long it took."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"not within {seconds:g} s: {what}")
        time.sleep(2)
    return time.monotonic() - began


def quiet(seconds: float) -> Callable[[], bool]:
    """Returns a check: whether the server has written nothing for that long."""
    since, at = logged(), time.monotonic()

    def check() -> bool:
        nonlocal since, at
        if written(since):
            since, at = logged(), time.monotonic()
        return time.monotonic() - at >= seconds

    return check
