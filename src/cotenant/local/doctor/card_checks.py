"""What is wrong with the cards and with who is on them: pure."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.units import format_bytes
from cotenant.hardware.accounting import NOISE
from cotenant.local.doctor.examination import Card, Facts
from cotenant.local.doctor.finding import ERROR, FIX, WARNING, Finding
from cotenant.local.job import Job


def over_granted(facts: Facts) -> Iterator[Finding]:
    for card in facts.cards:
        gpu = card.gpu
        granted = _granted_on(facts, gpu.uuid)
        if gpu.memory and granted > gpu.memory:
            yield Finding(
                "over-granted",
                gpu.uuid,
                ERROR,
                f"{format_bytes(granted)} of {gpu} are granted, it has {format_bytes(gpu.memory)}",
                "commands there can meet `out of memory` below their own limit",
                f"{FIX}: grants are lowered, never below what is in use; or stop one of them",
                repair="lower",
            )


def sick(facts: Facts) -> Iterator[Finding]:
    for card in facts.cards:
        if not card.gpu.healthy:
            yield Finding(
                "sick-card",
                card.gpu.uuid,
                ERROR,
                f"{card.gpu} ({card.gpu.model}) {card.reading.problem or 'is not healthy'}",
                "it takes no new grant; what runs on it may fail",
                "see dmesg for NVRM messages; reset the card (nvidia-smi -r) or restart the machine",
            )


def outside(facts: Facts) -> Iterator[Finding]:
    if facts.ledger is not None:
        return  # everybody would look like a stranger
    for card in facts.cards:
        size, gpu = card.account.outside, card.gpu
        if not gpu.healthy or (not card.account.strangers and size <= NOISE):
            continue
        over = _granted_on(facts, gpu.uuid) + size - gpu.memory
        crowded = f"; {format_bytes(over)} of what is granted is not there for its owners" if over > 0 else ""
        yield Finding(
            "outside",
            gpu.uuid,
            ERROR if over > 0 else WARNING,
            f"{format_bytes(size)} of {gpu} are held outside any grant: {_who(card)}",
            f"it counts as taken, and nothing limits it{crowded}",
            "start these with `cotenant run`, or leave it so",
        )


def _who(card: Card) -> str:
    named = [
        f"pid {each.pid}" + (f" ({format_bytes(each.bytes)})" if each.bytes is not None else "")
        for each in card.account.strangers
    ]
    if card.account.unexplained > NOISE:
        named.append(f"{format_bytes(card.account.unexplained)} that no process answers for")
    return ", ".join(named) or "its own processes, beyond their grants"


def escaped(facts: Facts) -> Iterator[Finding]:
    lost = {row.job.id for row in facts.rows if row.obstacle is not None}
    for card in facts.cards:
        for held in card.holdings:
            if held.job.id in lost:
                continue
            target = f"{held.job.id}/{held.pid}/{card.gpu.uuid}"
            if held.counted is None:
                yield Finding(
                    "escaped",
                    target,
                    WARNING if held.job.enforcer == "watch" else ERROR,
                    f"pid {held.pid} of {held.job.name} holds {format_bytes(held.told)} of {card.gpu}, "
                    "and the shim is not in it",
                    "its limit is watched, not enforced",
                    _preload_advice(held.job),
                )
            elif held.told > held.counted + NOISE:
                yield Finding(
                    "undercounted",
                    target,
                    WARNING,
                    f"pid {held.pid} of {held.job.name} holds {format_bytes(held.told)} of {card.gpu}, "
                    f"its slot counts {format_bytes(held.counted)}",
                    "CUDA contexts are larger here than taken to be: a grant can be passed by as much",
                    "set COTENANT_CONTEXT_MEMORY to what one context takes (nvidia-smi shows it)",
                )


def _preload_advice(job: Job) -> str:
    if job.enforcer == "watch":
        return "take a program that is linked dynamically against glibc, or leave it so"
    return (
        "find what clears LD_PRELOAD or COTENANT_SLOT on the way to that process (env -i, sudo, a container)"
    )


def _granted_on(facts: Facts, uuid: str) -> int:
    """Bytes of a card that living grants have."""
    return sum(
        share.memory for row in facts.rows if row.alive for share in row.job.shares if share.uuid == uuid
    )
