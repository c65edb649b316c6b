"""Decides whether a pod that holds more GPU memory than its limit is evicted.

Administrators decide: by the setting, and by a label of the namespace. A pod's author can ask for more
strictness, never for less, as with the mode at the limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.core.eviction import EVICTIONS, Eviction
from cotenant.dialects import names


def eviction_of(
    setting: Eviction, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[Eviction, str]:
    """Returns what applies to a pod, and what says so. A word that is not known counts as missing: nobody is
    evicted by a slip.
    """
    found, source = setting, "the setting limits.evict_over_limit"
    label = _read(labels)
    if label is not None:
        found, source = label, f"the namespace's label {names.EVICT_OVER_LIMIT}"
    own = _read(annotations)
    if own is not None and EVICTIONS.index(own) > EVICTIONS.index(found):
        found, source = own, f"the pod's annotation {names.EVICT_OVER_LIMIT}"
    return found, source


def _read(texts: Mapping[str, str]) -> Eviction | None:
    text = texts.get(names.EVICT_OVER_LIMIT, "").strip()
    return next((each for each in EVICTIONS if each == text), None)
