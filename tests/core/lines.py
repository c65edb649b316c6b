"""Builders of lines, demands and ledgers for the tests of the line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.line import Served, Waiting, serve
from cotenant.core.seen_pods import SeenPods

PATIENCE = 60


def machine(*sizes: int) -> list[GPU]:
    return [GPU(str(at), at, "T4", size) for at, size in enumerate(sizes)]


def asks(size: int, gpus: int = 1, **wishes: tuple[str, ...]) -> Demand:
    return Demand(Memory(bytes=size * gpus), gpus=gpus, **wishes)  # type: ignore[arg-type]


def wait(id: str, demand: Demand, since: float = 0, priority: int = 0, held: tuple[str, ...] = ()) -> Waiting:
    return Waiting(id, demand, priority, since, held)


def now(ledger: Ledger, line: Iterable[Waiting], at: float) -> Served:
    return serve(ledger, line, at, PATIENCE, SeenPods())


def admitted(served: Served) -> list[str]:
    return [grant.id for grant in served.admitted]


def remembered(line: Iterable[Waiting], served: Served) -> list[Waiting]:
    """The line after: those admitted are gone, the holds are noted."""
    gone = set(admitted(served))
    return [replace(each, held=served.held.get(each.id, ())) for each in line if each.id not in gone]


def filled(gpus: list[GPU], *sizes: int) -> Ledger:
    grants = [
        Grant(f"on-{gpu.uuid}", (Share(gpu.uuid, size),))
        for gpu, size in zip(gpus, sizes, strict=True)
        if size
    ]
    return Ledger(gpus, grants=grants)
