"""Evicts pods whose agent reports that they hold more GPU memory than their limit.

What is over is the agent's word, the condition `cotenant.dev/GPULimitHeld`; agents may evict nobody
themselves. It counts from when this server has seen it, by its own clock, and only while the agent of that
node reports: what one that has ended wrote last may no longer be true. Nothing is stored: a server that takes
over waits as long again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cotenant.core.errors import CotenantError
from cotenant.core.eviction import Eviction
from cotenant.core.units import format_duration
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError, NotFound, TooManyRequests, Unreachable
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import NAMESPACES
from cotenant.kube.api.store import Change, Store
from cotenant.kube.events import EventRecorder
from cotenant.kube.logs import get_logger
from cotenant.kube.overuse.policy import eviction_of
from cotenant.kube.overuse.settings import LimitsSettings
from cotenant.kube.pods.demand import has_ended
from cotenant.kube.pods.limit_held import LimitHeld, limit_held

log = get_logger(__name__)

TICK = 1.0
"""Seconds between two rounds."""
AGAIN = 10.0
"""Seconds after which an eviction that was refused is tried again, at least."""
WITHIN = 4.0
"""Seconds for one request; the lease must hold at least as long when an eviction is sent."""

WOULD_EVICT, EVICTED, REFUSED = "GPUOverLimitDryRun", "EvictedOverGPULimit", "GPUOverLimitNotEvicted"


@dataclass
class _Over:
    since: float
    next_try: float = float("-inf")
    told: str = ""
    """The last event's reason."""


@dataclass
class OveruseEvicting:
    """`run()` works until it is cancelled; only while this server leads."""

    client: Client
    pods: Store[Pod]
    settings: LimitsSettings
    recorder: EventRecorder
    must_lead: Callable[[float], None]
    """Raises unless no other server can lead for this many seconds."""
    agent_gone: Callable[[str], str | None]
    """Says why what the agent of this node wrote is not to be believed; None if it is."""
    clock: Callable[[], float] = time.monotonic
    counted: Callable[[str], object] = lambda _: None
    """Called with the outcome for each pod: `evicted`, `dry-run` or `refused`."""
    _over: dict[str, _Over] = field(default_factory=dict, init=False)
    """By the pod's UID."""

    def on_pod(self, change: Change[Pod]) -> None:
        pod, uid = change.object, change.object.metadata.uid
        found = limit_held(pod) if change.kind != "deleted" else None
        if found is None or not found.is_over or has_ended(pod):
            self._over.pop(uid, None)
        else:
            self._over.setdefault(uid, _Over(self.clock()))

    def begin(self) -> None:
        """Starts all waits anew: what was seen before the term may have been seen by nobody who could act."""
        now = self.clock()
        self._over = {uid: _Over(now) for uid in self._over}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                await self.turn()
            except Exception:  # whatever it is, the server must not end by it
                log.exception("evicting pods over their GPU limit failed")

    async def turn(self) -> None:
        """Looks once at all pods that are over."""
        for uid, over in list(self._over.items()):
            pod, now = self.pods.get(uid), self.clock()
            if pod is None or pod.metadata.deletion_timestamp is not None:
                continue
            found = limit_held(pod)
            if found is None or not found.is_over or now < over.next_try:
                continue
            if (
                now - over.since < self.settings.evict_after
                or self.agent_gone(pod.spec.node_name) is not None
            ):
                continue
            over.next_try = now + AGAIN
            policy, source = await self._policy(pod)
            if policy == "dry-run":
                self._tell(pod, over, WOULD_EVICT, "dry-run", self._would(found, source))
            elif policy == "on":
                await self._evict(pod, over, found, source)

    async def _policy(self, pod: Pod) -> tuple[Eviction, str]:
        """A namespace that cannot be read evicts nobody: its label may say so."""
        meta = pod.metadata
        try:
            namespace = await self.client.get(NAMESPACES, meta.namespace, within=WITHIN)
        except KubeError as error:
            log.warning("labels of the namespace cannot be read", namespace=meta.namespace, error=error)
            return "off", "the namespace cannot be read"
        labels: Mapping[str, str] = namespace.metadata.labels
        return eviction_of(self.settings.evict_over_limit, labels, meta.annotations)

    def _would(self, found: LimitHeld, source: str) -> str:
        after = format_duration(round(self.settings.evict_after))
        return (
            f"it would be evicted, since it has been over its limit for more than {after}: {found.details}. "
            f"Nothing is done: dry-run by {source}"
        )

    async def _evict(self, pod: Pod, over: _Over, found: LimitHeld, source: str) -> None:
        meta = pod.metadata
        try:
            self.must_lead(WITHIN)
            await self.client.evict(meta.name, meta.namespace, guard=Guard(meta.uid), within=WITHIN)
        except (NotFound, Conflict):
            return  # it is gone; the name may be another pod's by now
        except CotenantError as error:
            if isinstance(error, TooManyRequests):
                over.next_try = self.clock() + max(AGAIN, error.retry_after or 0.0)
            else:
                log.warning(
                    "eviction failed", namespace=meta.namespace, pod=meta.name, uid=meta.uid, error=error
                )
            if isinstance(error, KubeError) and not isinstance(error, Unreachable):
                # A budget, several budgets for one pod, or a right that is missing: people must know.
                why = f"over its limit ({found.details}), and not evicted now: {error}. It is tried again"
                self._tell(pod, over, REFUSED, "refused", why)
            return
        log.info("pod evicted: over its limit", namespace=meta.namespace, pod=meta.name, uid=meta.uid)
        self.counted("evicted")
        await self.recorder.record_now(pod, EVICTED, f"evicted, by {source}: {found.details}")

    def _tell(self, pod: Pod, over: _Over, reason: str, outcome: str, message: str) -> None:
        """Once for each outcome while it is over."""
        if over.told != reason:
            over.told = reason
            self.counted(outcome)
            self.recorder.record(pod, reason, message, each=True)
