"""Reads nodes and pods from CSV files: with the columns of the openb trace, or with sizes in bytes.

| | openb | with sizes |
|---|---|---|
| nodes | `sn,cpu_milli,memory_mib,gpu,model` | `name,cpu,memory,gpus,gpu_memory,model` |
| pods | `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec` | `name,cpu,memory,gpus,gpu_memory,model` |

`gpu_milli` is a thousandth of a card, `gpu_spec` the models that will do, separated by `|`. Of a node
`gpu_memory` is the size of each card; of a pod it is what it asks for in all, on `gpus` cards, and without it
the cards are whole. Cards without a size count as `CARD` bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from cotenant.core.demand import MOST_CARDS, Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU, LONGEST_MODEL
from cotenant.core.loss import PLENTY, Spare
from cotenant.core.units import check_unit, parse_memory
from cotenant.simulate.placement.csv_table import MIB, Row, read_rows
from cotenant.simulate.placement.workload import RecordedPod, Recording, SimulatedNode, SimulatedPod

__all__ = ["CARD", "MIB", "MILLI", "MOST_NODES", "MOST_PODS", "read_nodes", "read_pods", "read_trace"]

MILLI = 16 * MIB
"""Bytes that stand for a thousandth of a card."""
CARD = 1000 * MILLI
KUBELET_PODS = 110
"""Pods that a kubelet takes unless it is told otherwise."""
MOST_NODES, MOST_PODS = 20_000, 500_000
MOST_CARDS_OF_NODE = 256
LONGEST_NAME = 256

NAMES = ("sn", "name", "node")
CPU, MEMORY = ("cpu_milli", "cpu"), ("memory_mib", "memory")
CARDS = ("num_gpu", "gpus", "gpu")
MODELS = ("model", "gpu_spec", "gpu_model")
SIZE = ("gpu_memory", "gpu_memory_mib")
PART = (*SIZE, "gpu_milli")
CREATED, ENDED = ("creation_time", "created"), ("deletion_time", "ended")


def read_trace(nodes: str, pods: str) -> Recording:
    """Reads both files. Only nodes with GPUs count."""
    described, sized = _nodes(nodes)
    return Recording(tuple(described), tuple(_recorded(pods, sized=sized)), sized)


def read_pods_for(path: str, *, sized: bool) -> tuple[RecordedPod, ...]:
    """Reads pods for nodes that come from elsewhere."""
    return tuple(_recorded(path, sized=sized))


def read_nodes(path: Path) -> list[SimulatedNode]:
    """Reads the nodes that have GPUs."""
    return _nodes(str(path))[0]


def read_pods(path: Path, placement: str = "frag") -> list[SimulatedPod]:
    """Reads pods for cards without a size."""
    return [each.pod.by(placement) for each in _recorded(str(path), sized=False)]


def _nodes(path: str) -> tuple[list[SimulatedNode], bool]:
    """Returns the nodes, and whether the sizes of their cards are known."""
    found, seen = list[SimulatedNode](), set[str]()
    sized, unsized = False, None
    for row in read_rows(path, "nodes", (NAMES, CPU, MEMORY, CARDS), MOST_NODES):
        name = row.text(*NAMES)[:LONGEST_NAME]
        if not name:
            raise row.wrong(next(each for each in NAMES if each in row.cells), "is no name")
        if name in seen:
            raise BadInput(f"nodes: {row.file} line {row.line}: {name!a} is there twice: remove a line")
        seen.add(name)
        node = _node(row, name)
        if node.gpus:
            found.append(node)
            if _size(row):
                sized = True
            else:
                unsized = unsized or row
    if not found:
        raise BadInput(f"nodes: {path} has no node with a GPU: its column {' or '.join(CARDS)} says how many")
    if sized and unsized is not None:
        raise BadInput(
            f"nodes: {unsized.file} line {unsized.line}, column gpu_memory: it is empty, and other nodes "
            "have it: write the size of the cards, such as 40Gi"
        )
    return found, sized


def _node(row: Row, name: str) -> SimulatedNode:
    cards = row.whole(_column(row, CARDS), MOST_CARDS_OF_NODE)
    model = row.text(*MODELS)[:LONGEST_MODEL] or "GPU"
    size = _size(row) or CARD
    pods = row.whole("pods") if row.has("pods") else KUBELET_PODS
    gpus = tuple(GPU(f"{name}-{at}", at, model, size) for at in range(cards))
    return SimulatedNode(name, gpus, Spare(min(row.cpu(), PLENTY), min(row.memory(), PLENTY), pods))


def _size(row: Row) -> int:
    """Returns the size of a node's cards; 0 if the file does not say it."""
    if row.has("gpu_memory"):
        return row.bytes("gpu_memory")
    return row.whole("gpu_memory_mib", 2**30) * MIB


def _recorded(path: str, *, sized: bool) -> Iterator[RecordedPod]:
    read = 0
    for row in read_rows(path, "pods", (CPU, MEMORY, CARDS), MOST_PODS):
        read += 1
        try:
            demands = _demands(row, sized=sized)
        except BadInput as error:
            if str(error).startswith("pods:"):
                raise
            place = row.place(_column(row, CARDS))
            raise BadInput(f"{place}: {error}: correct or remove the line") from None
        created, ended = (row.seconds(_column(row, columns)) for columns in (CREATED, ENDED))
        if created is not None and ended is not None and ended < created:
            raise row.wrong(_column(row, ENDED), f"is before the pod was created, at {created:g}")
        name = row.text("workload", "name", "pod")[:LONGEST_NAME]
        yield RecordedPod(
            SimulatedPod(demands, row.cpu(), row.memory()),
            name,
            row.text("version")[:LONGEST_NAME],
            (row.text("container")[:LONGEST_NAME],) * len(demands),
            created,
            ended,
        )
    if not read:
        raise BadInput(f"pods: {path} has no pod below its first line: add a line for each")


def _demands(row: Row, *, sized: bool) -> tuple[Demand, ...]:
    asked = next((each for each in PART if row.has(each)), "")
    in_bytes = asked in SIZE
    cards = row.whole(_column(row, CARDS), MOST_CARDS)
    if not cards and in_bytes and not row.text(*CARDS):
        cards = 1
    if not cards:
        return ()
    models = tuple(each.strip() for each in row.text(*MODELS).split("|") if each.strip())
    compute = row.whole("gpu_compute", 100) or None
    memory = _bytes_asked(row, asked, sized=sized) if in_bytes else _milli_asked(row, cards, sized=sized)
    if memory is None:
        return (Demand(whole=cards, gpus=cards, models=models),)
    return (Demand(memory, cards, compute=compute, models=models),)


def _bytes_asked(row: Row, column: str, *, sized: bool) -> Memory | None:
    place = row.place(column)
    if column == "gpu_memory_mib":
        amount = row.whole(column, 2**30) * MIB
        if not amount:
            raise row.wrong(column, "is nothing, and GPUs are asked for")
        memory: Memory | None = Memory(bytes=amount)
    else:
        check_unit(row.cells[column], place)
        memory = parse_memory(row.cells[column], place)
    if memory is not None and memory.bytes is not None and not sized:
        raise BadInput(
            f"{place}: bytes are asked for, and the sizes of the cards are not known: add a column "
            "gpu_memory to the file of nodes, such as 40Gi, or ask for gpu_milli"
        )
    return memory


def _milli_asked(row: Row, cards: int, *, sized: bool) -> Memory | None:
    """Returns a part of each card; None for whole ones, which 1000 thousandths are, too."""
    milli = row.whole("gpu_milli") if row.has("gpu_milli") else 1000
    if milli >= 1000:
        return None
    if not milli:
        raise row.wrong("gpu_milli", f"is nothing, and {cards} GPUs are asked for")
    return Memory(percent=Fraction(milli, 10)) if sized else Memory(bytes=milli * MILLI * cards)


def _column(row: Row, choices: tuple[str, ...]) -> str:
    """Returns the first of these columns that has something in it, or that is there at all."""
    present = [each for each in choices if each in row.cells]
    return next((each for each in present if row.cells[each]), present[0] if present else choices[0])
