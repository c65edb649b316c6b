"""The server's side: who leads, the way to it, and what namespaces say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from cotenant.core.mode import MODES
from cotenant.dialects import names
from cotenant.kube.extender.endpoint import endpoint_slice
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, FIX, WARNING, Finding

_STALE = timedelta(seconds=60)
"""Beyond what a lease lasts: clocks differ."""


def lease(facts: Facts) -> Iterator[Finding]:
    settings = facts.installed.settings
    target, found = f"lease {facts.installed.namespace}/{settings.leader.lease}", facts.lease
    problem = None
    if facts.is_unread("lease"):
        return
    if found is None:
        problem = "is not there"
    elif not found.spec.holder_identity:
        problem = "is held by nobody"
    elif found.spec.renew_time is None or facts.now - found.spec.renew_time > _STALE + timedelta(
        seconds=settings.leader.duration
    ):
        problem = f"was last renewed {found.spec.renew_time}, by {found.spec.holder_identity}"
    if problem is not None:
        yield Finding(
            "not-led",
            target,
            ERROR,
            f"the {target} {problem}",
            "no server leads: no GPU pod is placed, and nobody is served in line",
            f"kubectl logs -n {facts.installed.namespace} -l app.kubernetes.io/component=server",
        )


def endpoint(facts: Facts) -> Iterator[Finding]:
    """Where the leader is not known, only that the way ends somewhere, and at one place."""
    if facts.slices is None:
        return
    space, name = facts.installed.namespace, facts.installed.settings.extender.service
    strange = sorted(other for other, each in facts.slices.items() if other != name and _addresses(each))
    address = facts.leader.status.pod_ip if facts.leader is not None else ""
    problem = _own_slice(facts, facts.slices.get(name), address)
    if strange:
        problem = f"has EndpointSlices that no server wrote: {', '.join(strange)}"
    if problem is None:
        return
    mended = bool(address) and not strange and leads_surely(facts)
    restart = f"kubectl rollout restart -n {space} deployment/cotenant-server"
    other_way = f"kubectl delete endpointslice -n {space} {' '.join(strange)}" if strange else restart
    yield Finding(
        "wrong-endpoint",
        f"service {space}/{name}",
        ERROR,
        f"the Service {space}/{name} {problem}",
        "kube-scheduler does not reach the server that leads: no GPU pod is placed",
        FIX if mended else other_way,
        "endpoint" if mended else None,
    )


def leads_surely(facts: Facts) -> bool:
    """By everybody's word: the Lease names the server, it says so itself, and nobody else does."""
    leading = [name for name, told in facts.ledgers.items() if told.leads]
    return facts.leader is not None and leading == [facts.leader.metadata.name]


def _own_slice(facts: Facts, found: Mapping[str, Any] | None, leader: str) -> str | None:
    addresses = _addresses(found or {})
    if not addresses:
        return "leads nowhere"
    if len(addresses) > 1:
        return f"leads to several servers, {', '.join(addresses)}: only one of them leads"
    if leader and addresses != [leader]:
        return f"leads to {addresses[0]}, and the leader is {leader}"
    settings = facts.installed.settings
    wanted = endpoint_slice(settings, addresses[0])["ports"]
    if facts.installed.settings_known and (found or {}).get("ports") != wanted:
        return f"does not lead to port {settings.extender.port} of the server"
    return None


def _addresses(slice_: Mapping[str, Any]) -> list[str]:
    return [
        address
        for endpoint in slice_.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint.get("addresses") or ()
    ]


def modes(facts: Facts) -> Iterator[Finding]:
    for meta in facts.namespaces:
        said = meta.labels.get(names.ENFORCE)
        if said and said not in MODES:
            yield Finding(
                "bad-mode",
                f"namespace {meta.name}",
                ERROR,
                f"the label {names.ENFORCE} of namespace {meta.name} is {said!r}",
                "GPU containers there do not start",
                f"kubectl label namespace {meta.name} {names.ENFORCE}=enforce --overwrite",
            )


def quotas(facts: Facts) -> Iterator[Finding]:
    """Kubernetes counts what is not its own under `requests.` only."""
    for quota in facts.quotas:
        hard = quota.spec.get("hard") or {}
        for name in hard:
            if names.DOMAIN not in name or name.startswith("requests."):
                continue
            bare = name.removeprefix("limits.")
            yield Finding(
                "quota-not-counted",
                f"quota {quota.metadata.namespace}/{quota.metadata.name}",
                WARNING,
                f"quota {quota.metadata.namespace}/{quota.metadata.name} limits {name}, which is not counted",
                "pods of that namespace may take more than it says",
                f"write requests.{bare} in place of {name}",
            )


def unread(facts: Facts) -> Iterator[Finding]:
    for what in facts.unread:
        yield Finding(
            "not-looked-at",
            what.partition(":")[0],
            WARNING,
            f"could not be looked at: {what}",
            "something may be wrong there that is not told here",
            "call it with the rights of a cluster administrator",
        )
