"""Decides whether the GPUs should be surveyed before it is time, since a container may hold more than it was
granted.

A survey lists every process of every GPU. How much memory of a GPU is in use is cheap to ask, so that is
asked every two seconds. Memory that appears there, and that neither slots count nor the last survey knew,
belongs to a program that the shim does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.limits.overuse import TOLERANCE

_SETTLED = 5.0
"""Seconds between surveys while a container is over that has been reported."""


def is_uncounted(used: Mapping[str, int], sight: Sight, counted: Callable[[], Mapping[str, int]]) -> bool:
    """Whether a GPU has memory in use that nobody counts. `used` now, by GPU; `counted`: bytes that slots
    count, by GPU and pod: read only where more is in use than at the last survey.
    """
    grown = [card.gpu.uuid for card in sight.cards if used.get(card.gpu.uuid, 0) - card.used > TOLERANCE]
    if not grown:
        return False
    known = counted()
    return any(used[uuid] > known.get(uuid, 0) + sight.outside.get(uuid, 0) + TOLERANCE for uuid in grown)


def is_due(*, undecided: bool, over: bool, age: float) -> bool:
    """Whether the next survey is due anyway. `undecided`: something was seen that the next survey confirms;
    `over`: a container is over its limit; `age` of the last survey, in seconds.
    """
    return undecided or (over and age >= _SETTLED)
