"""Finds what the author of a pod has probably not meant: a missing unit, a wrong one, a misspelt annotation.

Each would be valid and do something else than was meant, without a word: a pod with four bytes, one that
waits for ever, one on any GPU instead of an A100. What is certainly a slip is refused, with what was probably
meant; what may be right is admitted with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice

from cotenant.core.errors import BadInput
from cotenant.core.units import check_unit, format_bytes
from cotenant.dialects import names
from cotenant.dialects.dialect import ContainerDemand
from cotenant.dialects.registry import Dialects
from cotenant.kube.pods.containers import PodContainer
from cotenant.kube.pods.slots import PodDemand

LARGEST_GPU = 288 * 2**30
"""Bytes: the most memory that a GPU has today. Later ones may have more, so that is only a warning."""
IMPOSSIBLE = 2**40
"""Bytes that no GPU has: an amount in another system's unit was meant in another unit."""
MOST_WARNINGS = 8
"""The API server cuts longer lists."""
_MOST_NAMES = 64
"""Annotations that are compared with known names: each takes a fraction of a millisecond, and an author may
bring ten thousand.
"""
_SHOWN = 80
"""Characters that are shown of an annotation's name."""

_WISHES = (names.GPU_MODEL, names.GPU_UUID, names.PLACEMENT, names.ENFORCE, names.EVICT_OVER_LIMIT)
_COUNT = names.gpu_count("").rstrip("/")
_PREFIXES = (_COUNT, *(prefix.rstrip("/") for prefix in names.SERVER_ONLY_PREFIXES))
_OWN = f"{names.DOMAIN}/"


def check_meaning(
    containers: Sequence[PodContainer],
    annotations: Mapping[str, str],
    labels: Mapping[str, object],
    demand: PodDemand,
    dialects: Dialects,
) -> tuple[str, ...]:
    """Returns warnings for the author; BadInput for what is certainly a slip. Amounts of containers that were
    admitted before are not questioned again: admission wrote them.
    """
    members = [member for slot in demand.slots for member in slot.members if not member.admitted]
    asking = {member.container for member in members}
    for container in containers:
        if container.name in asking:
            _check_bytes(container)
    warnings = [
        *(warning for member in members for warning in _amount(member, dialects)),
        *(_question(key, demand, dialects) for key in islice(filter(_doubtful, annotations), _MOST_NAMES)),
        *(f"label {key} has no effect: write it as an annotation" for key in labels if key in _WISHES),
    ]
    return tuple([each for each in warnings if each][:MOST_WARNINGS])


def _check_bytes(container: PodContainer) -> None:
    for asked in container.resources.values():
        if names.GPU_MEMORY in asked:
            field = f"container {container.name!r}: {names.GPU_MEMORY}"
            check_unit(str(asked[names.GPU_MEMORY])[:_SHOWN], field)


def _amount(member: ContainerDemand, dialects: Dialects) -> Iterator[str]:
    """Questions memory that no GPU has."""
    if member.demand.memory is None or member.demand.per_card(0) <= LARGEST_GPU:
        return
    size = member.demand.per_card(0)
    asked = ", ".join(f"{name}: {amount}" for name, amount in sorted(member.asked.items()))
    hint = dialects.by_name[member.dialect].unit_hint
    there = f"container {member.container!r}: {asked} is {format_bytes(size)} on one GPU"
    said = f"{there}, more than any has: {hint}"
    if member.dialect != dialects.native.name and size > IMPOSSIBLE:
        raise BadInput(said)
    yield said


def _doubtful(key: str) -> bool:
    """Reports whether it is a name of ours that is not known, or a wish under another's name. Most
    annotations are others' and cost one comparison.
    """
    prefix, slash, name = key.partition("/")
    if not slash:
        return False
    if prefix == names.DOMAIN:
        return key not in _WISHES and key not in names.SERVER_ONLY
    if prefix.endswith(f".{names.DOMAIN}"):
        return prefix not in _PREFIXES
    return f"{_OWN}{name}" in _WISHES


def _question(key: str, demand: PodDemand, dialects: Dialects) -> str:
    """Returns a warning, empty if there is no reason for one; BadInput if it is a known name with a slip."""
    prefix, _, name = key.partition("/")
    if prefix == names.DOMAIN:
        return _unknown(key, name[:_SHOWN].lower(), demand, dialects)
    if prefix.endswith(f".{names.DOMAIN}"):
        return _unknown_prefix(key, prefix[:_SHOWN].lower(), name)
    if get_close_matches(prefix[:_SHOWN], [names.DOMAIN], 1, 0.8):
        return f"annotation {_cut(key)} has no effect: did you mean {_OWN}{name}?"
    return ""


def _unknown(key: str, name: str, demand: PodDemand, dialects: Dialects) -> str:
    """Returns a warning; BadInput if it is a known name with a slip."""
    shown = _cut(key)
    if key in dialects.native.resources:
        raise BadInput(
            f"annotation {shown}: this is a resource: write it under a container's resources.limits"
        )
    if get_close_matches(name, ["gpu-count"], 1, 0.8):
        meant = names.gpu_count(demand.slots[0].container)
        raise BadInput(f"annotation {shown} is not known: did you mean {meant}?")
    near = get_close_matches(name, [wish.removeprefix(_OWN) for wish in _WISHES], 1, 0.7)
    if near:
        raise BadInput(f"annotation {shown} is not known: did you mean {_OWN}{near[0]}?")
    return f"annotation {shown} is not known and has no effect"


def _unknown_prefix(key: str, prefix: str, name: str) -> str:
    if get_close_matches(prefix, [_COUNT], 1, 0.8):
        raise BadInput(f"annotation {_cut(key)} is not known: did you mean {_COUNT}/{_cut(name)}?")
    return f"annotation {_cut(key)} is not known and has no effect"


def _cut(name: str) -> str:
    """Shows a name without control characters, and not all of it if it is long."""
    return ascii(name[:_SHOWN])[1:-1]
