"""Finds the grant that a `cotenant run` is called in, so that it uses that grant instead of a second one.

A second grant would charge the same work twice, and could wait for ever for room that its own job holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.units import format_bytes
from cotenant.hardware.enforcers.shim import LEFT_SLOT_VARIABLE, SLOT_VARIABLE
from cotenant.local import processes, reap
from cotenant.local.job import Job
from cotenant.local.machine import Machine


def enclosing(machine: Machine, environ: Mapping[str, str]) -> Job | None:
    """Finds the job that this process runs in: by the slot in its environment, which also a daemon keeps,
    else by its ancestors, which a cleared environment does not change. None outside any grant of this ledger.
    """
    slots = {environ.get(SLOT_VARIABLE), environ.get(LEFT_SLOT_VARIABLE)} - {None, ""}
    granted = [job for job in machine.store.jobs() if job.shares]
    for job in granted:
        if str(job.slot) in slots and reap.is_alive(job):
            return job
    by_pid = {job.process.pid: job for job in granted}
    for pid in processes.ancestors(os.getpid()):  # itself too: the outer command may have become it
        found = by_pid.get(pid)
        if found is not None and found.process.alive():
            return found
    return None


def visible(outer: Job, demand: Demand, gpus: Mapping[str, GPU], *, sized: bool) -> tuple[Share, ...]:
    """Returns the shares of the outer grant that the command may see; BadInput if it asks for more than they
    are. Without `sized` any amount will do. `gpus` are the known GPUs by UUID.
    """
    suiting = [share for share in outer.shares if _accepts(demand, share, gpus)]
    enough = [share for share in suiting if not sized or _covers(share, demand, gpus)]
    if len(enough) < demand.count:
        has = describe(outer.shares, gpus)
        raise BadInput(
            f"{_asked(demand)} asked inside the grant of {outer.name}, which has {has}: a second grant could "
            f"wait for ever for what {outer.name} holds. Ask for no more than the grant has, enlarge it "
            f"(`cotenant resize {outer.name} ...`), or start this command outside of it"
        )
    return tuple(suiting)


def describe(shares: tuple[Share, ...], gpus: Mapping[str, GPU]) -> str:
    each = ", ".join(
        f"{format_bytes(share.memory)} on {gpus.get(share.uuid, share.uuid)}" for share in shares
    )
    return f"{each}, not shared" if any(share.whole for share in shares) else each


def _accepts(demand: Demand, share: Share, gpus: Mapping[str, GPU]) -> bool:
    gpu = gpus.get(share.uuid)
    if gpu is None:
        return not demand.models and (not demand.uuids or share.uuid in demand.uuids)
    return demand.accepts(gpu)


def _covers(share: Share, demand: Demand, gpus: Mapping[str, GPU]) -> bool:
    if demand.memory is None:
        return share.whole
    gpu = gpus.get(share.uuid)
    capacity = share.memory if gpu is None else gpu.memory
    enough_compute = share.whole or share.compute is None or (demand.compute or 0) <= share.compute
    return demand.per_card(capacity) <= share.memory and enough_compute


def _asked(demand: Demand) -> str:
    only = ", ".join((*demand.models, *demand.uuids))
    if demand.memory is None:
        whole = "1 whole GPU" if demand.count == 1 else f"{demand.count} whole GPUs"
        return f"{whole} of {only}" if only else whole
    over = f" over {demand.count} GPUs" if demand.count > 1 else ""
    compute = f" and {demand.compute}% of the compute" if demand.compute else ""
    return f"{demand.memory}{over}{compute}{f' of {only}' if only else ''}"
