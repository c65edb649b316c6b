"""Checks the GPUs and the processes on them: what is granted, health, memory that no limit covers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cotenant.core.checkup import NotRepaired
from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.core.units import Memory, format_bytes
from cotenant.hardware import slots
from cotenant.hardware.accounting import NOISE
from cotenant.hardware.nvml import CardProcess
from cotenant.local import line, ownership, slot_folder
from cotenant.local.doctor.facts import GpuFacts, Holding, MachineFacts
from cotenant.local.doctor.lowering import Held, lowered
from cotenant.local.doctor.slots import granted
from cotenant.local.doctor.subject import FIX, MachineSubject
from cotenant.local.job import Job
from cotenant.local.machine import Machine
from cotenant.local.processes import user
from cotenant.local.resize import resize

OVER_GRANTED = Kind("over-granted", ERROR, "commands there can get `out of memory` below their own limit")
SICK = Kind("sick-card", ERROR, "it gets no new grant; what runs on it may fail")
SHARED = Kind(
    "shared-memory",
    WARNING,
    "a grant limits what is allocated through CUDA; everything else on this host uses the same memory",
)
OUTSIDE = Kind("outside", WARNING, "it counts as taken, and nothing limits it")
ESCAPED = Kind("escaped", ERROR, "its limit is watched, not enforced")
UNDERCOUNTED = Kind(
    "undercounted",
    WARNING,
    "CUDA contexts are larger here than assumed: a grant can be exceeded by that much",
)


def over_granted(facts: MachineFacts) -> Iterator[Finding]:
    for gpu in (card.gpu for card in facts.cards):
        total = _granted_on(facts, gpu.uuid)
        if gpu.memory and total > gpu.memory:
            found = f"{format_bytes(total)} of {gpu} are granted, but it has {format_bytes(gpu.memory)}"
            do = f"{FIX}: it lowers grants, never below what is in use; or stop one of the commands"
            yield OVER_GRANTED.at(gpu.uuid, found, do, "lower")


def sick(facts: MachineFacts) -> Iterator[Finding]:
    for card in facts.cards:
        if not card.gpu.healthy:
            found = f"{card.gpu} ({card.gpu.model}) {card.reading.problem or 'is not healthy'}"
            do = "read NVRM's messages with dmesg; reset the GPU (nvidia-smi -r) or restart the machine"
            yield SICK.at(card.gpu.uuid, found, do)


def shared(facts: MachineFacts) -> Iterator[Finding]:
    for gpu in (card.gpu for card in facts.cards):
        if gpu.shared:
            found = (
                f"{gpu} ({gpu.model}) has no memory of its own: its {format_bytes(gpu.memory)} are the host's"
            )
            do = "leave room for the host; limit other programs by their cgroup (systemd-run -p MemoryMax=)"
            yield SHARED.at(gpu.uuid, found, do)


def outside(facts: MachineFacts) -> Iterator[Finding]:
    if facts.ledger is not None:
        return  # without a ledger every process would look like one outside grants
    for card in facts.cards:
        size, gpu = card.account.outside, card.gpu
        if not gpu.healthy or (not card.account.strangers and size <= NOISE):
            continue
        over = _granted_on(facts, gpu.uuid) + size - gpu.memory
        lacks = f"{OUTSIDE.means}; {format_bytes(over)} of what is granted is not there for its owners"
        yield OUTSIDE.at(
            gpu.uuid,
            f"{format_bytes(size)} of {gpu} are held outside any grant: {_holders(card)}",
            "start these processes with `cotenant run`, or leave it so",
            means=lacks if over > 0 else None,
            severity=ERROR if over > 0 else None,
        )


def _holders(card: GpuFacts) -> str:
    named = [_holder(each) for each in card.account.strangers]
    if card.account.unexplained > NOISE:
        named.append(f"{format_bytes(card.account.unexplained)} that no process answers for")
    return ", ".join(named) or "its own processes, beyond their grants"


def _holder(process: CardProcess) -> str:
    owner = user(process.pid)
    size = f" ({format_bytes(process.bytes)})" if process.bytes is not None else ""
    return f"pid {process.pid}{f' of {owner}' if owner else ''}{size}"


def escaped(facts: MachineFacts) -> Iterator[Finding]:
    lost = {row.job.id for row in facts.rows if row.obstacle is not None}
    for card in facts.cards:
        for held in card.holdings:
            if held.job.id not in lost:
                yield from _not_counted(card, held)


def _not_counted(card: GpuFacts, held: Holding) -> Iterator[Finding]:
    target = f"{held.job.id}/{held.pid}/{card.gpu.uuid}"
    holds = f"pid {held.pid} of {held.job.name} holds {format_bytes(held.told)} of {card.gpu}"
    if held.counted is None:
        watched = held.job.enforcer == "watch"
        yield ESCAPED.at(
            target,
            f"{holds}, but the shim is not loaded into it",
            "use a program that is linked dynamically against glibc, or leave it so"
            if watched
            else "find what clears LD_PRELOAD or COTENANT_SLOT for that process (env -i, sudo, a container)",
            severity=WARNING if watched else None,
        )
    elif held.told > held.counted + NOISE:
        yield UNDERCOUNTED.at(
            target,
            f"{holds}, but its slot counts {format_bytes(held.counted)}",
            "set COTENANT_CONTEXT_MEMORY to the size of one context (nvidia-smi shows it)",
        )


def _granted_on(facts: MachineFacts, uuid: str) -> int:
    """Bytes of a GPU that living jobs were granted."""
    return sum(
        share.memory for row in facts.rows if row.alive for share in row.job.shares if share.uuid == uuid
    )


def lower(machine: Machine, target: str) -> str:
    jobs = machine.store.jobs()
    sight = line.read_gpus(machine, jobs, machine.store.cards())
    card = next((reading.gpu for reading in sight.readings if reading.gpu.uuid == target), None)
    if card is None:
        raise NotRepaired(f"{target} does not answer")
    here = {job.id: job for job in jobs if any(share.uuid == target for share in job.shares)}
    used = sight.accounts[target].used
    held = {
        id: Held(share.memory, max(used.get(id, 0), _counted(job, at)))
        for id, job in here.items()
        for at, share in enumerate(job.shares)
        if share.uuid == target
    }
    told = []
    for id, size in lowered(held, card.memory).items():
        after = _shrink(machine, here[id], target, size)
        told.append(f"{after.name} to {format_bytes(after.grant.memory)}")
    if not told:
        raise NotRepaired("everything that is granted is in use: stop one of the commands")
    return f"lowered {', '.join(told)}"


def _shrink(machine: Machine, job: Job, uuid: str, size: int) -> Job:
    if job.demand.memory is not None:
        return resize(machine, job.name, Memory(bytes=size * job.demand.count)).after
    with machine.store.change() as books:  # the grant of a whole GPU has the size of the GPU
        job = granted(books.jobs, job.id)
        ownership.check(job, "resize")
        shares = tuple(replace(share, memory=size) if share.uuid == uuid else share for share in job.shares)
        after = books.jobs[job.id] = replace(job, shares=shares)
        machine.shim.change(job.slot, {uuid: size})
        slot_folder.write_record(after)
    return after


def _counted(job: Job, at: int) -> int:
    try:
        return slots.read_usage(job.slot).used(at)
    except slots.SlotUnusable:
        return 0


SUBJECT = MachineSubject(checks=(over_granted, sick, shared, outside, escaped), repairs={"lower": lower})
