"""Checks which server leads, whether its term has begun, and that kube-scheduler reaches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from cotenant.core.checkup import NotRepaired
from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.resources import LEASES
from cotenant.kube.extender.endpoint import endpoint_slice
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.gather import SLICES
from cotenant.kube.operating.doctor.remedies import FIX, server_log
from cotenant.kube.operating.doctor.subject import ClusterSubject, guard_of

_STALE = timedelta(seconds=60)
"""Beyond the duration of the Lease: clocks differ."""

NOT_LED = Kind("not-led", ERROR, "no server leads: no GPU pod is placed, and the line is not served")
NOT_BEGUN = Kind(
    "term-not-begun", ERROR, "no GPU pod is placed and the line is not served until its term begins"
)
WRONG_ENDPOINT = Kind(
    "wrong-endpoint", ERROR, "kube-scheduler does not reach the server that leads: no GPU pod is placed"
)


def lease(facts: Facts) -> Iterator[Finding]:
    if facts.is_unread("lease"):
        return
    settings, found = facts.installed.settings, facts.lease
    name, problem = f"{facts.installed.namespace}/{settings.leader.lease}", None
    oldest = facts.now - _STALE - timedelta(seconds=settings.leader.duration)
    if found is None:
        problem = "does not exist"
    elif not found.spec.holder_identity:
        problem = "has no holder"
    elif found.spec.renew_time is None or found.spec.renew_time < oldest:
        problem = f"was last renewed at {found.spec.renew_time}, by {found.spec.holder_identity}"
    if problem is not None:
        do = f"read the log of the servers: {server_log(facts)}"
        yield NOT_LED.at(f"lease {name}", f"the Lease {name} {problem}", do)


def term(facts: Facts) -> Iterator[Finding]:
    """A server that was elected and cannot begin its term. Servers of older versions do not report terms."""
    space = facts.installed.namespace
    for server, told in facts.ledgers.items():
        if told.term is None or told.term.begun or not (told.leads or told.term.waits_for):
            continue
        part, _, reason = (told.term.waits_for or "the server does not say why").partition(": ")
        waits = f"its part {part} is not ready: {reason}" if reason else part
        yield NOT_BEGUN.at(
            f"pod {space}/{server}",
            f"the server {space}/{server} was elected, but term {told.term.number} has not begun: {waits}",
            "resolve that reason: the server retries by itself, and its log says more: "
            f"kubectl logs -n {space} {server}",
        )


def endpoint(facts: Facts) -> Iterator[Finding]:
    """Where the leader is not known, only that the Service has one endpoint. A leader writes the endpoint
    when its term begins: until then `term` reports what is wrong.
    """
    if facts.slices is None or not _has_begun(facts):
        return
    space, name = facts.installed.namespace, facts.installed.settings.extender.service
    strange = sorted(other for other, each in facts.slices.items() if other != name and _addresses(each))
    address = facts.leader.status.pod_ip if facts.leader is not None else ""
    problem = _own_slice(facts, facts.slices.get(name), address)
    do, repair = f"restart the servers: kubectl rollout restart -n {space} deployment/cotenant-server", None
    if strange:
        problem = f"has EndpointSlices that no server wrote: {', '.join(strange)}"
        do = f"delete them: kubectl delete endpointslice -n {space} {' '.join(strange)}"
    elif address and leads_surely(facts):
        do, repair = f"{FIX}: it writes the leader's address", "endpoint"
    if problem is not None:
        found = f"the Service {space}/{name} {problem}"
        yield WRONG_ENDPOINT.at(f"service {space}/{name}", found, do, repair)


def _has_begun(facts: Facts) -> bool:
    """Whether the leader's term has begun, or that is not known."""
    told = facts.ledgers.get(facts.leader.metadata.name) if facts.leader is not None else None
    return told is None or told.term is None or told.term.begun


def leads_surely(facts: Facts) -> bool:
    """Whether all sources agree: the Lease names the server, it reports that it leads, and no other does."""
    leading = [name for name, told in facts.ledgers.items() if told.leads]
    return facts.leader is not None and leading == [facts.leader.metadata.name]


def _own_slice(facts: Facts, found: Mapping[str, Any] | None, leader: str) -> str | None:
    addresses = _addresses(found or {})
    if not addresses:
        return "has no endpoint"
    if len(addresses) > 1:
        return f"has several endpoints, {', '.join(addresses)}, but only one server leads"
    if leader and addresses != [leader]:
        return f"has the endpoint {addresses[0]}, but the leader is {leader}"
    settings = facts.installed.settings
    wanted = endpoint_slice(settings, addresses[0])["ports"]
    if facts.installed.settings_known and (found or {}).get("ports") != wanted:
        return f"does not point to port {settings.extender.port} of the server"
    return None


def _addresses(slice_: Mapping[str, Any]) -> list[str]:
    return [
        address
        for endpoint in slice_.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint.get("addresses") or ()
    ]


async def write_endpoint(client: Client, facts: Facts, _finding: Finding) -> str:
    """Writes the leader's address, as the leader itself does once, when its term begins.

    The slice is read before the Lease. If another server has become the leader since then, it has written the
    slice, and this write fails.
    """
    settings, leader = facts.installed.settings, facts.leader
    if leader is None:
        raise NotRepaired("no server leads")
    wanted = endpoint_slice(settings, leader.status.pod_ip)
    name = wanted["metadata"]["name"]
    try:
        found = await client.get(SLICES, name, settings.namespace)
    except NotFound:
        found = None
    lease = await client.get(LEASES, settings.leader.lease, settings.namespace)
    if not (lease.spec.holder_identity or "").startswith(f"{leader.metadata.name}_"):
        raise NotRepaired(f"{lease.spec.holder_identity or 'no server'} leads now")
    if found is not None and found.get("addressType") != wanted["addressType"]:
        await client.delete(SLICES, name, settings.namespace, guard=guard_of(found))
        found = None  # the type of its addresses cannot be changed
    if found is None:
        await client.create(SLICES, wanted, settings.namespace)
    else:
        changes = {key: wanted[key] for key in ("endpoints", "ports")}
        await client.merge_patch(SLICES, name, changes, settings.namespace, guard=guard_of(found))
    return f"wrote the address of {leader.metadata.name} ({leader.status.pod_ip})"


SUBJECT = ClusterSubject(
    checks=(lease, term, endpoint),
    repairs={"endpoint": write_endpoint},
    lasting={NOT_BEGUN.name: 12.0},
)
