"""Reads one container's resources, in any dialect, as a demand."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.dialects.dialect import ContainerDemand
from cotenant.dialects.quantity import parse_whole, show
from cotenant.dialects.registry import Dialects
from cotenant.dialects.wishes import Wishes


def asks(resources: Mapping[str, Mapping[str, object]], dialects: Dialects) -> bool:
    """Whether any resource of ours or of a dialect is named, even with the amount zero."""
    return any(_known(name, dialects) for kind in resources.values() for name in kind)


def read_container(
    container: str,
    position: int,
    resources: Mapping[str, Mapping[str, object]],
    wishes: Wishes,
    dialects: Dialects,
) -> ContainerDemand | None:
    """Reads the demand; None if it asks for no GPU. `resources` are `limits` and `requests` as in the pod.

    A container with a slot was admitted before: its native figures are the slot's demand and count, even if
    the settings have changed since. Without a slot, figures in two dialects are refused.
    """
    asked = _asked(container, resources, dialects)
    slot = asked.pop(names.GPU_SLOT, 0)
    if slot > 1:
        raise BadInput(
            f"container {container!r}: {names.GPU_SLOT}: {slot}: this is added for you: leave it out"
        )
    if slot:
        asked = dialects.native.for_each_gpu(container, asked, wishes)
    native = dialects.native.read(container, asked, wishes)
    spoken = [
        (dialect, demand)
        for dialect in dialects.others
        if (demand := dialect.read(container, asked, wishes)) is not None
    ]
    if len(spoken) > 1 or (spoken and native is not None and not slot):
        raise BadInput(
            f"container {container!r}: {' and '.join(sorted(asked))} ask for the same thing twice: "
            "leave all but one of them out"
        )
    if spoken:
        dialect, demand = spoken[0]
        own = {name: amount for name, amount in asked.items() if name in dialect.resources}
        demand = demand if native is None else native
        return ContainerDemand(container, position, dialect.name, demand, own, admitted=bool(slot))
    if native is not None:
        return ContainerDemand(container, position, dialects.native.name, native, asked, admitted=bool(slot))
    if slot:
        raise BadInput(
            f"container {container!r}: {names.GPU_SLOT}: this is added for you: leave it out, and ask for "
            f"{names.GPU_MEMORY} or {names.GPU}"
        )
    return None


def _asked(
    container: str, resources: Mapping[str, Mapping[str, object]], dialects: Dialects
) -> dict[str, int]:
    """Collects our resources and the dialects' as whole numbers. An amount of zero is left out, except of a
    name that is not known: that is refused with any amount.
    """
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    asked = {}
    for name in {*limits, *requests}:
        if not _known(name, dialects):
            continue
        field = f"container {container!r}: {name}"
        example = "4Gi" if name == names.GPU_MEMORY else "1"
        limit = parse_whole(limits[name], field, example) if name in limits else 0
        request = parse_whole(requests[name], field, example) if name in requests else limit
        if request != limit:
            raise BadInput(
                f"{field}: the request is {show(requests[name])} and the limit "
                f"{show(limits[name]) if name in limits else 'is missing'}: they must be the same: "
                f"write it under limits alone"
            )
        if limit or name not in dialects.resources:
            asked[name] = limit
    return asked


def _known(name: str, dialects: Dialects) -> bool:
    """Whether we read this resource. Every name of our domain counts, so that a wrong one is reported."""
    return name in dialects.resources or name.startswith(f"{names.DOMAIN}/")
