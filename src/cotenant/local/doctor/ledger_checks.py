"""What is wrong with the ledger, with what it lists and with the slots: pure."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.units import format_bytes
from cotenant.local.doctor.examination import Facts, Row
from cotenant.local.doctor.finding import ERROR, FIX, WARNING, Finding


def access(facts: Facts) -> Iterator[Finding]:
    for each in facts.access:
        if not each.writable:
            yield Finding(
                "not-writable",
                str(each.path),
                ERROR,
                f"{each.path} cannot be written by you (mode {each.mode:03o}, owner {each.owner})",
                "no grant can be charged or given back from here",
                "give it to the owner of the folder with chown (a past sudo may have made it), "
                "or name another folder in COTENANT_HOME",
            )
        elif each.mode != each.wanted:
            everybody = "every user of this machine must be able to write it"
            yield Finding(
                "wrong-mode",
                str(each.path),
                ERROR if facts.home.shared else WARNING,
                f"{each.path} has mode {each.mode:03o}, {each.wanted:03o} is right",
                everybody if facts.home.shared else "other users can change your grants",
                FIX,
                repair="mode",
            )


def lock(facts: Facts) -> Iterator[Finding]:
    if facts.locked_by is not None:
        yield Finding(
            "lock-held",
            str(facts.home.lock),
            ERROR,
            f"{facts.locked_by} does not let go of the ledger's lock",
            "nothing can start and nothing is given back until it does",
            "look at that process: if it is stopped, `kill -CONT` it; if it hangs, end it (nothing is lost)",
        )


def ledger(facts: Facts) -> Iterator[Finding]:
    if facts.ledger is None:
        return
    damaged = facts.ledger.damaged
    yield Finding(
        "ledger-damaged" if damaged else "ledger-unusable",
        str(facts.home.ledger),
        ERROR,
        facts.ledger.text,
        "nothing can start; what runs goes on, with its limits",
        f"{FIX}: it is rebuilt from what is running, and the old file is kept" if damaged else "see above",
        repair="rebuild" if damaged else None,
    )


def ended(facts: Facts) -> Iterator[Finding]:
    for job in (row.job for row in facts.rows if not row.alive):
        if job.shares:
            yield Finding(
                "dead-owner",
                job.id,
                WARNING,
                f"{job.name} is charged with {format_bytes(job.grant.memory)}, and none of it lives",
                "the room is free when the next command looks; until then it looks taken",
                FIX,
                repair="settle",
            )
        else:
            yield Finding(
                "dead-waiter",
                job.id,
                WARNING,
                f"{job.name} stands in line, and its process is gone",
                "cards may be held for nobody until the next command looks",
                FIX,
                repair="settle",
            )


def strays(facts: Facts) -> Iterator[Finding]:
    if facts.ledger is not None:
        return  # nothing is known to be stray
    for stray in facts.strays:
        where = str(stray.folder)
        if not stray.alive:
            yield Finding(
                "stray-slot",
                where,
                WARNING,
                f"{where} belongs to no grant, and nobody uses it",
                "it takes a little memory and nothing else",
                FIX,
                repair="sweep",
            )
        elif stray.job is not None:
            size = format_bytes(stray.job.grant.memory)
            yield Finding(
                "uncharged",
                where,
                ERROR,
                f"{stray.job.name} runs with {size}, and the ledger knows nothing of it",
                "its room could be granted a second time",
                FIX,
                repair="settle",
            )
        else:
            yield Finding(
                "unreadable-slot",
                where,
                ERROR,
                f"{where} is in use, and its files do not tell by whom or how much",
                "its memory counts as held outside any grant, and its limit may not hold",
                f"find its processes with `fuser {where}/usage` and end them",
            )


def slots(facts: Facts) -> Iterator[Finding]:
    for row in facts.rows:
        if row.obstacle is not None:
            yield Finding(
                "slot-lost",
                row.job.id,
                ERROR,
                f"{row.job.name} runs, and its slot cannot be used: {row.obstacle}",
                "its processes that start from now on get no memory of the card, and its use is not measured",
                f"{FIX}: its slot is made anew. Processes that run already keep the limit they know",
                repair="slot",
            )
        elif row.limits is not None and (differs := _difference(row)):
            yield Finding(
                "limits-differ",
                row.job.id,
                ERROR,
                f"{row.job.name}: {differs}",
                "it may take more than is charged for it, or less than it was granted",
                f"{FIX}: the ledger's figures are put in force",
                repair="limits",
            )


def _difference(row: Row) -> str | None:
    job, limits = row.job, row.limits
    if limits is None:
        return None
    charged = {share.uuid: share.memory for share in job.shares}
    allowed = {card.uuid: card.bytes for card in limits.cards}
    if charged.keys() != allowed.keys():
        return f"its slot is for {', '.join(allowed) or 'no card'}, charged is {', '.join(charged)}"
    for uuid, size in charged.items():
        if allowed[uuid] != size:
            return f"its slot allows {allowed[uuid]} bytes of {uuid}, charged are {size}"
    if limits.mode != job.mode:
        return f"its slot says {limits.mode}, it was started with {job.mode}"
    if limits.owner != job.id:
        return f"its slot is made for {limits.owner}, not for {job.id}"
    return None
