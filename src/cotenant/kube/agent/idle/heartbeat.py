"""Renews the Lease by which others know that what this agent reports is still true."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError, NotFound
from cotenant.kube.api.objects import Node
from cotenant.kube.api.resources import LEASES
from cotenant.kube.logs import get_logger
from cotenant.kube.nodes.agent_reports import RENEW, SILENT, lease_of

log = get_logger(__name__)

_WITHIN = 5.0
"""Seconds for one request."""


@dataclass
class Heartbeat:
    """`beat()` renews the Lease if it is time to."""

    client: Client
    namespace: str
    node: Callable[[], Node | None]
    """As the API server last showed it: the Lease is deleted with it."""
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)
    trouble: KubeError | None = field(default=None, init=False)
    _tried: float | None = field(default=None, init=False)

    async def beat(self) -> None:
        """Call it only while all that was reported is true."""
        node, now = self.node(), self.clock()
        if node is None or (self._tried is not None and now - self._tried < RENEW):
            return
        self._tried = now
        trouble: KubeError | None = None
        try:
            await self._renew(node)
        except Conflict:
            self._tried = None  # it was created or replaced meanwhile
        except KubeError as error:
            trouble = error
        if trouble is not None and type(trouble) is not type(self.trouble):
            log.warning("lease of the agent not renewed: idle pods count as unknown", error=trouble)
        self.trouble = trouble

    async def _renew(self, node: Node) -> None:
        name = lease_of(node.metadata.name)
        spec: dict[str, Any] = {
            "holderIdentity": node.metadata.name,
            "leaseDurationSeconds": round(SILENT),
            "renewTime": self.wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            await self.client.merge_patch(LEASES, name, {"spec": spec}, self.namespace, within=_WITHIN)
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
            meta = {"name": name, "ownerReferences": [owner]}
            await self.client.create(LEASES, {"metadata": meta, "spec": spec}, self.namespace, within=_WITHIN)
