"""Reads a dump of a cluster: what `cotenant status -o json` printed.

Pods that are made for one node, such as those of a DaemonSet, stay on it in every simulation: what they take
is taken from the node. All others can be placed anew, or kept where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from cotenant.advice.text_lines import name_of, whole
from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.loss import PLENTY, Spare
from cotenant.core.units import LARGEST
from cotenant.simulate.placement.trace import MOST_CARDS_OF_NODE, MOST_NODES, MOST_PODS
from cotenant.simulate.placement.workload import RecordedPod, Recording, SimulatedNode, SimulatedPod

MOST_BYTES = 1 << 30
"""Of a file."""
OPTION = "cluster"
ANEW = "write it anew with `cotenant status -o json`"

_Text = Annotated[str, Meta(max_length=512)]
_Name = Annotated[str, Meta(min_length=1, max_length=512)]
_Bytes = Annotated[int, Meta(ge=0, le=LARGEST)]
_Amount = Annotated[int, Meta(ge=0, le=PLENTY)]
_Percent = Annotated[str, Meta(pattern=r"^[0-9]{1,9}(/[0-9]{1,9})?\Z")]


class _Share(msgspec.Struct, frozen=True):
    uid: _Name
    memory: _Bytes
    whole: bool = False
    compute: Annotated[int, Meta(ge=1, le=100)] | None = None


class _Gpu(msgspec.Struct, frozen=True):
    index: _Amount
    uuid: _Name
    model: _Text
    memory: _Bytes
    outside: _Bytes = 0
    problem: str | None = None
    drained: bool = False
    shared: bool = False
    pods: tuple[_Share, ...] = ()


class _Demand(msgspec.Struct, frozen=True):
    container: _Text = ""
    memory: Annotated[int, Meta(ge=1, le=LARGEST)] | None = None
    percent: _Percent | None = None
    gpus: int = 1
    whole: int = 0
    compute: int | None = None
    models: tuple[_Text, ...] = ()
    uuids: tuple[_Text, ...] = ()


class _Pod(msgspec.Struct, frozen=True):
    uid: _Name
    cpu: _Amount
    memory: _Amount
    demands: Annotated[tuple[_Demand, ...], Meta(max_length=256)]
    namespace: _Text = ""
    pod: _Text = ""
    workload: _Text = ""
    version: _Text = ""
    pinned: bool = False
    created: datetime | None = None


class _Allocatable(msgspec.Struct, frozen=True):
    cpu: _Amount = PLENTY
    memory: _Amount = PLENTY
    pods: _Amount = PLENTY


class _Node(msgspec.Struct, frozen=True):
    name: _Name
    gpus: Annotated[tuple[_Gpu, ...], Meta(max_length=MOST_CARDS_OF_NODE)]
    allocatable: _Allocatable
    pods: Annotated[tuple[_Pod, ...], Meta(max_length=MOST_PODS)]
    unschedulable: bool = False


class _Dump(msgspec.Struct, frozen=True):
    nodes: Annotated[tuple[_Node, ...], Meta(max_length=MOST_NODES)]
    pending: Annotated[tuple[_Pod, ...], Meta(max_length=MOST_PODS)] = ()


T = TypeVar("T")


def read_dump(path: str) -> Recording:
    """Reads nodes with GPUs, the pods on them and those that wait, the oldest first."""
    file, dump = name_of(path), decode(path, OPTION, _Dump, ANEW)
    pods, nodes = list[RecordedPod](), list[SimulatedNode]()
    names, cards, uids = set[str](), set[str](), set[str]()
    for node in dump.nodes:
        _once(file, "node", node.name, names)
        for gpu in node.gpus:
            _once(file, "GPU", gpu.uuid, cards)
        for pod in node.pods:
            _once(file, "pod", pod.uid, uids)
        if node.gpus:
            described, own = _read_node(file, node)
            nodes.append(described)
            pods += own
    for pod in dump.pending:
        _once(file, "pod", pod.uid, uids)
        pods.append(_recorded(file, pod))
    if not nodes:
        raise BadInput(f"{OPTION}: {file} has no node with a GPU: do Cotenant's agents run? Then {ANEW}")
    if len(pods) > MOST_PODS:
        raise BadInput(f"{OPTION}: {file} has more than {MOST_PODS} pods: remove some")
    pods.sort(key=lambda each: 0.0 if each.created is None else each.created)
    return Recording(tuple(nodes), tuple(pods))


def decode(path: str, option: str, kind: type[T], remedy: str) -> T:
    """Reads a JSON file; what is wrong is said with file, line or field, and remedy."""
    text = whole(path, option, MOST_BYTES)
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        said = str(error).replace(" - at `$.", " at `").replace(" - at `$", " at `$")
    except msgspec.DecodeError as error:
        said = f"line {_line(text, str(error))} is not JSON ({error})"
    except (UnicodeError, RecursionError) as error:
        said = f"it is not JSON ({error})"
    raise BadInput(f"{option}: {name_of(path)}: {said}: {remedy}")


def _line(text: str, said: str) -> int:
    """Finds the line of a byte that msgspec names, or the last one."""
    digits = "".join(each for each in said.rpartition("(byte ")[2] if each.isdigit())
    data = text.encode()
    return data.count(b"\n", 0, int(digits) if digits else len(data)) + 1


def _once(file: str, kind: str, name: str, seen: set[str]) -> None:
    if name in seen:
        raise BadInput(f"{OPTION}: {file}: {kind} {name[:80]!a} is there twice: {ANEW}")
    seen.add(name)


def _read_node(file: str, node: _Node) -> tuple[SimulatedNode, list[RecordedPod]]:
    """Returns the node with what is left beside the pods that stay on it, and the other pods on it."""
    shares: dict[str, list[Share]] = {}
    outside = dict[str, int]()
    movable = {pod.uid for pod in node.pods if not pod.pinned}
    for gpu in node.gpus:
        outside[gpu.uuid] = gpu.outside
        for share in gpu.pods:
            if share.uid in movable and (share.memory or share.whole):
                held = Share(gpu.uuid, share.memory, share.compute, share.whole)
                shares.setdefault(share.uid, []).append(held)
            else:
                outside[gpu.uuid] += share.memory
    cards = tuple(
        GPU(
            each.uuid,
            each.index,
            each.model,
            each.memory,
            healthy=each.problem is None and not each.drained,
            shared=each.shared,
        )
        for each in node.gpus
    )
    described = SimulatedNode(
        node.name,
        cards,
        _left(node),
        {uuid: size for uuid, size in outside.items() if size},
        cordoned=node.unschedulable,
    )
    own = [
        _recorded(file, pod, node.name, shares.get(pod.uid, ())) for pod in node.pods if pod.uid in movable
    ]
    return described, own


def _left(node: _Node) -> Spare:
    has, pinned = node.allocatable, [pod for pod in node.pods if pod.pinned]
    return Spare(
        _less(has.cpu, sum(pod.cpu for pod in pinned)),
        _less(has.memory, sum(pod.memory for pod in pinned)),
        _less(has.pods, len(pinned)),
    )


def _less(amount: int, taken: int) -> int:
    return amount if amount >= PLENTY else max(0, amount - taken)


def _recorded(
    file: str, pod: _Pod, node: str = "", shares: tuple[Share, ...] | list[Share] = ()
) -> RecordedPod:
    if len({share.uuid for share in shares}) != len(shares):
        raise BadInput(f"{OPTION}: {file}: pod {pod.uid[:80]!a} is on one GPU twice: {ANEW}")
    created = pod.created
    if created is not None and created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    return RecordedPod(
        SimulatedPod(tuple(_demand(file, pod, each) for each in pod.demands), pod.cpu, pod.memory),
        pod.workload,
        pod.version,
        tuple(each.container for each in pod.demands),
        None if created is None else created.timestamp(),
        uid=pod.uid if node else "",
        node=node,
        shares=tuple(shares),
    )


def _demand(file: str, pod: _Pod, asked: _Demand) -> Demand:
    fields: Mapping[str, object] = msgspec.to_builtins(asked)
    try:
        return replace(Demand.from_json(fields), placement="frag")
    except BadInput as error:
        who = f"{pod.namespace}/{pod.pod}" if pod.pod else pod.uid
        raise BadInput(f"{OPTION}: {file}: demands of pod {who[:80]!a}: {error}: {ANEW}") from None
