"""From facts to what is wrong: a table of checks, one for each kind of trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cotenant.kube.operating.doctor import (
    grant_checks,
    ledger_checks,
    node_checks,
    server_checks,
    slot_checks,
)
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    server_checks.lease,
    server_checks.endpoint,
    server_checks.certificate,
    server_checks.webhook,
    server_checks.policies,
    server_checks.schedulers,
    server_checks.modes,
    server_checks.quotas,
    grant_checks.over_granted,
    grant_checks.unreadable,
    grant_checks.early,
    grant_checks.without_grant,
    grant_checks.card_gone,
    ledger_checks.leaders,
    ledger_checks.ledger,
    node_checks.annotation,
    node_checks.capacity,
    node_checks.agents,
    node_checks.versions,
    node_checks.second_plugin,
    node_checks.sees_cards,
    node_checks.drained_gone,
    node_checks.sick,
    slot_checks.slots,
    server_checks.unread,
)
"""In the order in which they are best mended."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    return tuple(finding for check in CHECKS for finding in check(facts))
