"""Binds a pod: chooses its GPUs, charges the ledger, then posts one Binding that carries the grant.

The charge comes first and is given back only when it is certain that the Binding did not and will not happen.
A lost response says nothing about the outcome, so the pod's resourceVersion is changed: a Binding that is
still on its way is guarded by the old one and fails, and what is read after that is the outcome.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Protocol, runtime_checkable

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput, CotenantError, NoRoom
from cotenant.dialects.binding import bind_annotations
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import PODS
from cotenant.kube.binding.counted import check_counted
from cotenant.kube.binding.fencing import NotChanged, fence_all, fenced
from cotenant.kube.binding.ledger_feed import LedgerFeed
from cotenant.kube.logs import get_logger
from cotenant.kube.pods.annotation_size import RESERVE, overflow, size_with
from cotenant.kube.pods.demand import demand_of, has_ended
from cotenant.kube.pods.requests import beside_gpus
from cotenant.kube.pods.slots import PodDemand
from cotenant.kube.scheduling.placing import place_pod

log = get_logger(__name__)

WITHIN = 4.0
"""Seconds for one Binding; the lease must hold at least as long when it is sent."""
TRIES = 3
"""Binding attempts that meet a newer state of the pod: others write its status at the same time."""


class NotBound(CotenantError):
    """The pod was not bound. kube-scheduler gets the message and tries the pod again later."""


@runtime_checkable
class BinderLine(Protocol):
    """The line, as far as binding changes it."""

    def add(self, pod: Pod, demands: tuple[Demand, ...]) -> None:
        """Puts a pod in line for which there is no room after all."""

    def forget(self, uid: str) -> None:
        """Takes a pod out of the line."""

    def moved(self) -> None:
        """Says that the ledger may have gained room."""


@dataclass(frozen=True, slots=True)
class BindTarget:
    """The pod to bind, and the node to bind it to."""

    namespace: str
    name: str
    uid: str
    node: str

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


@dataclass
class Binder:
    """Nothing is awaited between the decision and the charge, so no lock is needed."""

    within: ClassVar[float] = WITHIN
    """Seconds that one bind takes at most."""

    client: Client
    feed: LedgerFeed
    line: BinderLine
    dialects: Dialects
    must_lead: Callable[[float], None]
    """Raises unless no other server can lead for this many seconds."""
    wall_ns: Callable[[], int] = time.time_ns
    random: Random = field(default_factory=Random, repr=False)
    _doubts: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Returns when the pod is bound, and raises if it is not."""
        target = BindTarget(namespace, name, uid, node)
        self.must_lead(WITHIN)
        if uid in self.feed.under_way:
            raise NotBound(f"{target} is being bound already")
        self.feed.under_way.add(uid)
        try:
            await self._bind(target)
        finally:
            if uid not in self._doubts:
                self.feed.under_way.discard(uid)

    def in_doubt(self) -> bool:
        """Whether a Binding was sent of which it is not known whether it was carried out."""
        return bool(self._doubts)

    async def _bind(self, target: BindTarget) -> None:
        pod = self.feed.pods.get(target.uid)
        for _ in range(TRIES):
            if pod is None:
                pod = await self._read(target)
            if self._is_done(pod, target.node):
                return
            if self.feed.is_unfenced(pod):
                pod = await self._fence(pod)
                continue
            try:
                await self._post(pod, target.node)
            except Conflict:
                pod = None  # a newer state, or another pod of that name: read it
            else:
                return
        raise NotBound(f"{target} changes faster than it can be bound")

    async def _read(self, target: BindTarget) -> Pod:
        pod = await self.client.get(PODS, target.name, target.namespace, within=WITHIN)
        if pod.metadata.uid != target.uid:
            raise NotBound(f"{target} is another one by now")
        return pod

    async def _fence(self, pod: Pod) -> Pod | None:
        """Returns the pod when an earlier Binding cannot change it any more."""
        try:
            now = await fenced(self.client, pod, WITHIN)
        except NotChanged as error:
            raise NotBound(
                f"pod {pod.metadata.namespace}/{pod.metadata.name} cannot be changed, so a Binding that was "
                f"sent earlier may still arrive; it is bound when something has changed it: {error}"
            ) from None
        self.feed.unfenced.pop(pod.metadata.uid, None)
        return now

    def _is_done(self, pod: Pod, node: str) -> bool:
        """Reports whether an earlier attempt, whose response was lost, has bound it. Raises for a pod that
        must not be bound any more.
        """
        meta = pod.metadata
        if pod.spec.node_name:
            if self.feed.load(pod) and pod.spec.node_name == node:
                return True
            raise NotBound(f"pod {meta.namespace}/{meta.name} is bound to {pod.spec.node_name} already")
        if meta.deletion_timestamp is not None or has_ended(pod):
            raise NotBound(f"pod {meta.namespace}/{meta.name} is leaving")
        if pod.spec.scheduling_gates:
            raise NotBound(f"pod {meta.namespace}/{meta.name} is gated")
        return False

    async def _post(self, pod: Pod, node: str) -> None:
        meta, demand = pod.metadata, demand_of(pod, self.dialects)
        self.must_lead(WITHIN)
        annotations = self._charge(pod, node, demand) if demand.slots else {}
        try:
            await self.client.bind(
                meta.name, meta.namespace, node, guard=Guard.of(pod), annotations=annotations, within=WITHIN
            )
        except KubeError as error:
            if error.uncertain:
                self._doubt(pod)
            else:
                self._give_back(meta.uid)
            raise
        except BaseException:
            self._doubt(pod)  # stopped when it may have been sent
            raise
        self.line.forget(meta.uid)

    def _charge(self, pod: Pod, node: str, demand: PodDemand) -> dict[str, str]:
        """Checks again what filter promised: two pods may have been promised the same room. The annotations
        of the Binding are made before the charge: if that fails, nothing is charged.
        """
        cluster, meta = self.feed.cluster, pod.metadata
        cluster.release(meta.uid)
        requests = beside_gpus(pod)
        grant = place_pod(cluster, node, meta.uid, demand.slots, requests)
        if grant is None:
            self.line.add(pod, demand.demands)
            raise NoRoom(f"no room on the GPUs of {node} any more")
        check_counted(pod, grant)
        gpus = {gpu.uuid: gpu for gpu in cluster.ledger(node).gpus}
        annotations = bind_annotations(demand.slots, grant, gpus, self.wall_ns(), self.dialects)
        excess = overflow(size_with(pod, annotations), RESERVE)
        if excess:
            raise BadInput(f"metadata.annotations: with the grant, {excess}: remove or shorten some")
        cluster.charge(node, grant)
        cluster.request(meta.uid, node, requests)
        return annotations

    def _give_back(self, uid: str) -> None:
        self.feed.give_back(uid)
        self.line.moved()

    def _doubt(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if uid not in self._doubts:
            task = asyncio.get_running_loop().create_task(self._settle(pod))
            self._doubts[uid] = task
            task.add_done_callback(lambda _: self._settled(uid))

    def _settled(self, uid: str) -> None:
        self._doubts.pop(uid, None)
        self.feed.under_way.discard(uid)

    async def _settle(self, pod: Pod) -> None:
        """Repeats until the outcome is known. If we do not lead any more, the next leader's list shows it."""

        def seen(uid: str, now: Pod | None, refused: NotChanged | None) -> None:
            self.feed.fenced(uid, refused)
            if now is None or not self.feed.load(now):
                self._give_back(uid)

        await fence_all(self.client, [pod], seen, self._leads, random=self.random)

    def _leads(self) -> bool:
        try:
            self.must_lead(0.0)
        except CotenantError:
            return False
        return True
