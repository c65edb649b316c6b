"""Reads nodes and pods from CSV files with the columns of the openb trace.

Nodes: `sn,cpu_milli,memory_mib,gpu,model`. Pods: `cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec`, where
`gpu_milli` is a thousandth of a card, and `gpu_spec` the models that will do, separated by `|`. Cards of the
trace have no size: all count as `CARD` bytes.
"""

from __future__ import annotations

import csv
from pathlib import Path

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.loss import Spare
from cotenant.simulate.placement.workload import SimulatedNode, SimulatedPod

MIB = 2**20
MILLI = 16 * MIB
"""Bytes that stand for a thousandth of a card."""
CARD = 1000 * MILLI
MOST_PODS = 110
"""Pods that a kubelet takes."""


def read_nodes(path: Path) -> list[SimulatedNode]:
    """Reads the nodes that have GPUs."""
    return [_node(path, line, row) for line, row in _rows(path) if _number(path, line, row, "gpu") > 0]


def read_pods(path: Path, placement: str = "frag") -> list[SimulatedPod]:
    return [_pod(path, line, row, placement) for line, row in _rows(path)]


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    with path.open(newline="") as file:
        return list(enumerate(csv.DictReader(file), 2))


def _node(path: Path, line: int, row: dict[str, str]) -> SimulatedNode:
    name, model = row.get("sn") or f"node-{line}", row.get("model") or "GPU"
    cards = range(_number(path, line, row, "gpu"))
    cpu, memory = _number(path, line, row, "cpu_milli"), _number(path, line, row, "memory_mib") * MIB
    return SimulatedNode(
        name, tuple(GPU(f"{name}-{at}", at, model, CARD) for at in cards), Spare(cpu, memory, MOST_PODS)
    )


def _pod(path: Path, line: int, row: dict[str, str], placement: str) -> SimulatedPod:
    cpu, memory = _number(path, line, row, "cpu_milli"), _number(path, line, row, "memory_mib") * MIB
    cards = _number(path, line, row, "num_gpu")
    if not cards:
        return SimulatedPod((), cpu, memory)
    milli = _number(path, line, row, "gpu_milli")
    models = tuple(name for name in (row.get("gpu_spec") or "").split("|") if name)
    if milli >= 1000:
        demand = Demand(whole=cards, gpus=cards, models=models, placement=placement)
    else:
        demand = Demand(Memory(bytes=milli * MILLI * cards), gpus=cards, models=models, placement=placement)
    return SimulatedPod((demand,), cpu, memory)


def _number(path: Path, line: int, row: dict[str, str], column: str) -> int:
    text = row.get(column) or ""
    if not (text.isascii() and text.isdigit()):
        raise BadInput(f"{path.name}, line {line}: {column} is {text!r}, not a whole number")
    return int(text)
