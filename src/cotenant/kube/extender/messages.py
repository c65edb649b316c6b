"""Reads and writes the messages of kube-scheduler's extender API.

Their keys are Go field names without tags: we write them so, and read them in any case, as Go does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from cotenant.core.errors import BadInput
from cotenant.kube.api.objects import Pod

T = TypeVar("T")

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_UID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_Name = Annotated[str, msgspec.Meta(pattern=_NAME.pattern)]
_Uid = Annotated[str, msgspec.Meta(pattern=_UID.pattern)]

_ALL_NAMED = 16
"""Nodes up to which an answer names all of them."""


class Args(msgspec.Struct, frozen=True, gc=False, rename="pascal", forbid_unknown_fields=True):
    """Arguments of filter and prioritize."""

    pod: Pod
    nodes: Any = None
    """Whole nodes, which kube-scheduler sends only to extenders that keep no cache."""
    node_names: list[str] | None = None

    def __post_init__(self) -> None:
        _check_identity(self.pod)

    @property
    def names(self) -> list[str]:
        if self.node_names is None:
            raise BadInput("NodeNames: there are none: set nodeCacheCapable: true in the extender's entry")
        return self.node_names


class MetaPod(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    pods: tuple[MetaPod, ...] | None = msgspec.field(name="Pods", default=())
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class Victims(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    pods: tuple[Pod, ...] | None = msgspec.field(name="Pods", default=())
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptArgs(msgspec.Struct, frozen=True, gc=False, rename="pascal", forbid_unknown_fields=True):
    pod: Pod
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None
    node_name_to_victims: dict[str, Victims] | None = None

    def __post_init__(self) -> None:
        _check_identity(self.pod)

    def proposed(self) -> dict[str, MetaVictims]:
        """Returns, by node, the pods that the scheduler would evict."""
        if self.node_name_to_meta_victims:
            return self.node_name_to_meta_victims
        return {
            node: MetaVictims(
                tuple(MetaPod(pod.metadata.uid) for pod in victims.pods or ()), victims.violations
            )
            for node, victims in (self.node_name_to_victims or {}).items()
        }


class BindArgs(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    name: _Name = msgspec.field(name="PodName")
    namespace: _Name = msgspec.field(name="PodNamespace")
    uid: _Uid = msgspec.field(name="PodUID")
    node: _Name = msgspec.field(name="Node")


def _check_identity(pod: Pod) -> None:
    """Checks the identity: a pod that waits is later patched by its name, which must then be valid."""
    meta = pod.metadata
    for field, text, pattern in (
        ("name", meta.name, _NAME),
        ("namespace", meta.namespace, _NAME),
        ("uid", meta.uid, _UID),
    ):
        if not pattern.match(text):
            raise ValueError(f"Pod.metadata.{field}: {text[:64]!a} is not valid")


class HostPriority(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    host: str
    score: int


def read(body: bytes, kind: type[T]) -> T:
    """Decodes a message; BadInput says what is not valid. A key that is not known or not spelled as Go does
    takes the slow path.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(_cased(msgspec.json.decode(body), kind), kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"body: this is not what kube-scheduler sends an extender: {error}") from None


def _cased(value: Any, kind: type[Any]) -> Any:
    """Spells the keys of the message itself as they should be, and drops those that are not known. What lies
    inside has tags of its own.
    """
    if not isinstance(value, Mapping):
        return value
    wanted = {field.encode_name.casefold(): field.encode_name for field in msgspec.structs.fields(kind)}
    cased = {wanted[folded]: each for key, each in value.items() if (folded := str(key).casefold()) in wanted}
    for key, inner in (("NodeNameToMetaVictims", MetaVictims), ("NodeNameToVictims", Victims)):
        if isinstance(cased.get(key), Mapping):
            cased[key] = {node: _cased(each, inner) for node, each in cased[key].items()}
    if kind is MetaVictims and isinstance(cased.get("Pods"), list):
        cased["Pods"] = [_cased(pod, MetaPod) for pod in cased["Pods"]]
    return cased


def filtered(fitting: Sequence[str], failed: dict[str, str], never: dict[str, str]) -> bytes:
    """Encodes the answer to filter; `never` are nodes where evicting others would not help either."""
    return msgspec.json.encode(
        {"NodeNames": fitting, "FailedNodes": failed, "FailedAndUnresolvableNodes": never, "Error": ""}
    )


def prioritized(names: Sequence[str], points: Mapping[int, int]) -> bytes:
    """Encodes the answer to prioritize; `points` are by place in `names`. Of many nodes only those with
    points are named: to kube-scheduler the others have none, and to read thousands takes it milliseconds.
    """
    named = range(len(names)) if len(names) <= _ALL_NAMED else points
    return msgspec.json.encode([HostPriority(names[at], points.get(at, 0)) for at in named])


def preempted(victims: Mapping[str, MetaVictims]) -> bytes:
    return msgspec.json.encode({"NodeNameToMetaVictims": victims})


def bound(error: str = "") -> bytes:
    return msgspec.json.encode({"Error": error})


def failed(error: str) -> bytes:
    """Encodes an error, in the key that every answer of the API has."""
    return msgspec.json.encode({"Error": error})
