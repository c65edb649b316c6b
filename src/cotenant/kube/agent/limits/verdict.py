"""Decides what a pod's condition says about its limits, from what was seen of its containers.

One condition for the pod: the weakest of its containers decides. In the modes `observe` and `warn` nothing is
to be held, so nothing that passes a limit there is a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cotenant.core.mode import Mode
from cotenant.core.units import format_bytes
from cotenant.hardware.enforcers.choosing import STRENGTH
from cotenant.kube.agent.cards.survey import PodProcess
from cotenant.kube.agent.limits.overuse import Overuse, named
from cotenant.kube.pods.limit_held import Reason, message

WATCH, NONE = "watch", "none"
_LONGEST = 300
"""Characters of why a weaker enforcer holds."""


@dataclass(frozen=True, slots=True)
class ContainerLimit:
    """What was seen of one container of a pod."""

    container: str
    mode: Mode
    asked: str
    by: str
    """The enforcer that holds it; empty while that is unknown."""
    sizes: Mapping[str, int]
    """Its limit by GPU, as that is shown to people: `GPU 0`."""
    reason: str = ""
    """What was seen, in words."""
    over: tuple[tuple[str, Overuse], ...] = ()
    """By GPU, as it is shown: what has been over for longer than the grace."""
    free: tuple[tuple[str, PodProcess], ...] = ()
    """By GPU: processes that two looks found without the limit."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition without its times."""

    status: Literal["True", "False"]
    reason: Reason
    message: str


def verdict(containers: Sequence[ContainerLimit], commands: Mapping[int, str]) -> Verdict | None:
    """Judges a pod by its containers with a slot; None while nothing is known of any."""
    known = [each for each in containers if each.by or each.over]
    if not known:
        return None
    asked = known[0].asked
    weakest = max((each.by or WATCH for each in known), key=STRENGTH.index)
    over = [each for each in known if each.over and each.mode == "enforce"]
    if over:
        details = "; ".join(_over(each, commands) for each in over)
        return Verdict("False", "OverLimit", message(asked, weakest, details))
    lost = [
        each for each in known if each.mode == "enforce" and each.by in (WATCH, NONE) and each.asked != WATCH
    ]
    if lost:
        details = "; ".join(_lost(each, commands) for each in lost)
        return Verdict("False", "NotHeld", message(asked, weakest, details))
    watched = [each for each in known if each.mode != "enforce" or each.by == WATCH]
    if watched:
        details = "; ".join(_watched(each, commands) for each in known)
        return Verdict("False", "Watch", message(asked, WATCH, details))
    reason: Reason = "Shim" if weakest == "shim" else "Driver"
    return Verdict("True", reason, message(asked, weakest, "; ".join(map(_held, known))))


def _limits(each: ContainerLimit) -> str:
    return " and ".join(f"{format_bytes(size)} on {gpu}" for gpu, size in each.sizes.items())


def _held(each: ContainerLimit) -> str:
    weaker = f" ({each.reason[:_LONGEST]})" if each.by != each.asked and each.reason else ""
    return f"container {each.container}: limit of {_limits(each)} held by {each.by}{weaker}"


def _over(each: ContainerLimit, commands: Mapping[int, str]) -> str:
    texts = [
        f"{format_bytes(over.used)} on {gpu}, {format_bytes(over.over)} more than its limit of "
        f"{format_bytes(over.limit)} ({named(over.processes, commands)})"
        for gpu, over in each.over
    ]
    return f"container {each.container} holds {' and '.join(texts)}"


def _lost(each: ContainerLimit, commands: Mapping[int, str]) -> str:
    if each.by == NONE:
        return f"container {each.container}: nothing enforces its limit of {_limits(each)}"
    by_gpu: dict[str, list[PodProcess]] = {}
    for gpu, process in each.free:
        by_gpu.setdefault(gpu, []).append(process)
    who = " and ".join(f"{named(of_gpu, commands)} on {gpu}" for gpu, of_gpu in by_gpu.items())
    return f"container {each.container} uses a GPU without its limit: {who or each.reason[:_LONGEST]}"


def _watched(each: ContainerLimit, commands: Mapping[int, str]) -> str:
    if each.over:
        return _over(each, commands)
    why = "use beyond it is reported" if each.mode == "enforce" else f"mode {each.mode}"
    return f"container {each.container}: limit of {_limits(each)}, nothing is stopped: {why}"
