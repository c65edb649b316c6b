"""From what was seen to what is wrong: a table of checks, one for each kind of trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cotenant.local.doctor import card_checks, ledger_checks, system_checks
from cotenant.local.doctor.examination import Facts
from cotenant.local.doctor.finding import Finding

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    ledger_checks.access,
    ledger_checks.lock,
    ledger_checks.ledger,
    ledger_checks.ended,
    ledger_checks.strays,
    ledger_checks.slots,
    card_checks.over_granted,
    card_checks.sick,
    card_checks.outside,
    card_checks.escaped,
    system_checks.filesystem,
    system_checks.driver,
    system_checks.shim,
    system_checks.musl,
    system_checks.preloads,
)
"""In the order in which they are best repaired."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    return tuple(finding for check in CHECKS for finding in check(facts))
