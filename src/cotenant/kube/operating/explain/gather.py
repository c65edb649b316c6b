"""Reads what `explain` needs from the API server, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.kube.api import resources
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.errors import Forbidden, KubeError, NotFound
from cotenant.kube.api.objects import ContainerState, Event, Generic, Meta, Pod, Terminated
from cotenant.kube.api.resources import (
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    Resource,
)
from cotenant.kube.operating.explain import explaining
from cotenant.kube.operating.explain.case import Case
from cotenant.kube.operating.explain.explanation import Explanation
from cotenant.kube.operating.explain.line_view import view_line
from cotenant.kube.operating.explain.refused_pod import Quota, explain_refusal
from cotenant.kube.operating.explain.workloads import PODS, WORKLOADS, Asked, owned
from cotenant.kube.operating.installed import Installed, find_installed
from cotenant.kube.operating.status.reading import Seen, read_all
from cotenant.kube.pods.demand import has_ended
from cotenant.kube.pods.eligibility import Placement
from cotenant.observe.view import View

MOST_LISTED = 100
"""Pods in line that are explained."""


class UnboundPod(msgspec.Struct, frozen=True, gc=False):
    """A pod with the fields that say on which nodes it may be placed."""

    metadata: Meta = Meta()
    spec: Placement = Placement()


_RAW_PODS = resources.PODS.raw
_UNBOUND = resources.PODS.read_as(UnboundPod)
_WITHOUT_NODE = Selection(fields="spec.nodeName=")


class NotExplained(CotenantError):
    """Nothing of that name exists."""


@dataclass(frozen=True)
class _Cluster:
    seen: Seen | None
    """None: this person may not read it."""
    placements: Mapping[str, Placement]
    """Of pods without a node, by UID."""
    installed: Installed
    now: float


async def explain(client: Client, namespace: str | None, asked: Asked, now: float) -> list[Explanation]:
    """Explains a pod or workload by name; in all namespaces if `namespace` is None."""
    cluster = await _cluster(client, now)
    if asked.kind in {None, PODS}:
        found = await _pods_named(client, namespace, asked.name)
        if found:
            return [await _explain(client, each, cluster) for each in found]
    if asked.kind != PODS:
        for resource in WORKLOADS:
            if asked.kind in {None, resource.plural}:
                made = await _named(client, resource, namespace, asked.name)
                if made:
                    return [each for one in made for each in await _workload(client, resource, one, cluster)]
    raise await _not_there(client, namespace, asked)


async def explain_line(client: Client, namespace: str | None, now: float) -> View:
    """Gathers the cluster with its line, in the order in which pods are served: at most MOST_LISTED,
    of one namespace if it is given. `left_out` counts what was cut.
    """
    cluster = await _cluster(client, now)
    if cluster.seen is None:
        raise NotExplained("the line is everybody's: listing it needs the right to list nodes and pods")
    settings, seen = cluster.installed.settings, cluster.seen
    placements = cluster.placements
    line, view = view_line(seen.nodes, seen.pods, settings, now, placements), seen.view
    waiting = [line.pods[each.uid] for each in line.line]
    wanted = [pod for pod in waiting if namespace in {None, pod.metadata.namespace}]
    cases = [
        Case(pod, now, placements, nodes=seen.nodes, pods=seen.pods, settings=settings)
        for pod in wanted[:MOST_LISTED]
    ]
    explained = explaining.explain_line(cases, line, view.nodes)
    return replace(view, line=tuple(explained), length=len(waiting), left_out=len(wanted) - len(explained))


async def _cluster(client: Client, now: float) -> _Cluster:
    async def all_() -> tuple[Seen | None, dict[str, Placement]]:
        try:
            seen, unbound = await asyncio.gather(read_all(client), client.list(_UNBOUND, _WITHOUT_NODE))
        except Forbidden:
            return None, {}
        return seen, {each.metadata.uid: each.spec for each in unbound.items}

    (seen, placements), installed = await asyncio.gather(all_(), find_installed(client))
    return _Cluster(seen, placements, installed, now)


async def _pods_named(client: Client, namespace: str | None, name: str) -> list[dict[str, Any]]:
    if namespace is not None:
        try:
            return [await client.get(_RAW_PODS, name, namespace)]
        except NotFound:
            return []
    return (await client.list(_RAW_PODS, Selection(fields=f"metadata.name={name}"))).items


async def _explain(client: Client, raw: dict[str, Any], cluster: _Cluster) -> Explanation:
    pod = msgspec.convert(raw, Pod)
    own, seen = pod.metadata.namespace, cluster.seen
    labels, warning = await asyncio.gather(_labels(client, own), _warning(client, pod))
    return explaining.explain_pod(
        Case(
            pod,
            cluster.now,
            {**cluster.placements, pod.metadata.uid: msgspec.convert(raw.get("spec") or {}, Placement)},
            nodes=seen.nodes if seen else (),
            pods=_with(seen.pods, pod) if seen else (),
            labels=labels,
            settings=cluster.installed.settings,
            terminated=_terminated(raw),
            warning=warning,
            whole=seen is not None,
        )
    )


class _PastStatus(msgspec.Struct, rename="camel"):
    name: str = ""
    last_state: ContainerState = ContainerState()


class _PastStatuses(msgspec.Struct, rename="camel"):
    container_statuses: tuple[_PastStatus, ...] = ()
    init_container_statuses: tuple[_PastStatus, ...] = ()


def _terminated(raw: dict[str, Any]) -> dict[str, Terminated]:
    past = msgspec.convert(raw.get("status") or {}, _PastStatuses)
    return {
        each.name: each.last_state.terminated
        for each in (*past.init_container_statuses, *past.container_statuses)
        if each.last_state.terminated is not None
    }


def _with(pods: Sequence[Pod], pod: Pod) -> tuple[Pod, ...]:
    """Returns all pods, this one as it was read last."""
    return (*(each for each in pods if each.metadata.uid != pod.metadata.uid), pod)


async def _labels(client: Client, namespace: str) -> dict[str, str]:
    try:
        return (await client.get(NAMESPACES, namespace)).metadata.labels
    except KubeError:
        return {}


async def _warning(client: Client, pod: Pod) -> str:
    fields = f"involvedObject.uid={pod.metadata.uid},type=Warning"
    try:
        events = (await client.list(EVENTS, Selection(pod.metadata.namespace, fields=fields))).items
    except KubeError:
        return ""
    newest = _newest(events)
    return newest.message if newest is not None else ""


def _newest(events: Sequence[Event]) -> Event | None:
    return max(events, key=lambda each: each.last_seen, default=None)


async def _named(
    client: Client, resource: Resource[Generic], namespace: str | None, name: str
) -> list[Generic]:
    try:
        if namespace is not None:
            return [await client.get(resource, name, namespace)]
        return (await client.list(resource, Selection(fields=f"metadata.name={name}"))).items
    except (NotFound, Forbidden):
        return []


async def _workload(
    client: Client, resource: Resource[Generic], workload: Generic, cluster: _Cluster
) -> list[Explanation]:
    """Explains why pods of the workload are missing, then those of its pods that do not run."""
    meta = workload.metadata
    uids = {meta.uid}
    if resource is DEPLOYMENTS:
        sets = (await client.list(REPLICA_SETS, Selection(meta.namespace))).items
        uids |= {each.uid for each in owned(uids, [one.metadata for one in sets])}
    raw = (await client.list(_RAW_PODS, Selection(meta.namespace))).items
    metas = owned(uids, [msgspec.convert(each["metadata"], Meta) for each in raw])
    living = {each.uid for each in metas}
    own = [each for each in raw if each["metadata"]["uid"] in living]
    target = f"{resource.kind.lower()} {meta.namespace}/{meta.name}"
    told: list[Explanation] = []
    failure = await _failure(client, meta.namespace, uids)
    if failure is not None and _lacks(
        workload, [each for each in own if not has_ended(msgspec.convert(each, Pod))]
    ):
        quotas = await _quotas(client, meta.namespace)
        told.append(explain_refusal(target, meta.namespace, failure.message, quotas))
    of_pods = [await _explain(client, each, cluster) for each in own]
    told += [each for each in of_pods if each.state != "running"] or of_pods[:1]
    if not told:
        told.append(
            Explanation(
                target,
                "empty",
                "",
                f"it has no pods: {_wanted(workload)} are wanted",
                f"kubectl describe -n {meta.namespace} {resource.kind.lower()} {meta.name}",
            )
        )
    return told


def _wanted(workload: Generic) -> int:
    spec, status = workload.spec, workload.status
    return int(spec.get("replicas", spec.get("parallelism", status.get("desiredNumberScheduled", 1))) or 0)


def _lacks(workload: Generic, own: Sequence[object]) -> bool:
    return len(own) < _wanted(workload)


async def _failure(client: Client, namespace: str, uids: set[str]) -> Event | None:
    events = (await client.list(EVENTS, Selection(namespace, fields="reason=FailedCreate"))).items
    return _newest([each for each in events if each.involved_object.uid in uids])


async def _quotas(client: Client, namespace: str) -> dict[str, Quota] | None:
    """Reads the quotas of a namespace, by name; None if this person may not read them."""
    try:
        found = (await client.list(RESOURCE_QUOTAS, Selection(namespace))).items
    except KubeError:
        return None
    return {
        each.metadata.name: Quota(each.status.get("hard") or {}, each.status.get("used") or {})
        for each in found
    }


async def _not_there(client: Client, namespace: str | None, asked: Asked) -> CotenantError:
    """Looks for traces of a pod that was never created: its controller's event, or a full quota."""
    where = f" in namespace {namespace}" if namespace is not None else " in any namespace"
    what = asked.kind.removesuffix("s") if asked.kind else "pod or workload"
    message = f"no {what} {asked.name}{where}"
    if namespace is None:
        return NotExplained(f"{message}: kubectl get pods -A")
    try:
        events = (await client.list(EVENTS, Selection(namespace, fields="reason=FailedCreate"))).items
    except KubeError:
        events = []
    quotas = await _quotas(client, namespace)
    newest = _newest([each for each in events if asked.name.startswith(f"{each.involved_object.name}-")])
    if newest is not None:
        made_by = f"{newest.involved_object.kind.lower()} {namespace}/{newest.involved_object.name}"
        told = explain_refusal(made_by, namespace, newest.message, quotas)
        return NotExplained(f"{message}; {made_by}: {told.sentence}. Next: {told.step}")
    full = [f"{name} ({line})" for name, quota in (quotas or {}).items() for line in _full(quota)]
    hint = f"; quotas on GPU there: {', '.join(full)}" if full else ""
    return NotExplained(
        f"{message}{hint}: if creating it was refused, kubectl said why; -A looks in all namespaces"
    )


def _full(quota: Quota) -> list[str]:
    return [
        f"{quota.used.get(name, '0')} of {amount} of {name}"
        for name, amount in quota.hard.items()
        if names.DOMAIN in name
    ]
