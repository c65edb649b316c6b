"""Finds a number in a JSON document by a path: `depth`, `queues[0].depth`, `queues["room-scene"].depth`,
`$`.
"""

from __future__ import annotations

import math
import re
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.signals.signal import NoSample, SignalError

_STEP = re.compile(
    r"""\.?(?P<name>[^.\[\]"'\s$]+) | \[(?P<index>[0-9]{1,9})\]
    | \["(?P<double>[^"]+)"\] | \['(?P<single>[^']+)'\]""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?|[+-]?inf|nan", re.IGNORECASE)
LARGEST = 1e18
"""A larger figure is not a number of messages, nor of seconds."""


def parse_path(text: str, field: str) -> tuple[str | int, ...]:
    """Parses a path into names and indexes; BadInput names the field."""
    rest = text.removeprefix("$")
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None or (steps and step["name"] and rest[at] != "."):
            raise BadInput(
                f"{field}: {text[:80]!a} is not a path: "
                'write it like depth, queues[0].depth or queues["a.b"].depth'
            )
        steps.append(
            int(step["index"]) if step["index"] else step["name"] or step["double"] or step["single"]
        )
        at = step.end()
    if not text:
        raise BadInput(f"{field}: it is empty: write it like queues[0].depth, or $ for the whole document")
    return tuple(steps)


def find(document: Any, steps: tuple[str | int, ...], path: str) -> Any:
    """Returns what stands at this path; SignalError says where it ends and what is there."""
    here = document
    for at, step in enumerate(steps):
        named = isinstance(step, str) and isinstance(here, dict) and step in here
        counted = isinstance(step, int) and isinstance(here, list) and step < len(here)
        if not (named or counted):
            raise SignalError(f"{path} is not in the answer: {_place(steps[:at])} {_describe(here)}")
        here = here[step]
    return here


def number(value: Any, what: str) -> float:
    """Returns a figure that is 0 or more. NaN and null mean that there is no figure at present."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise NoSample(f"{what} has no figure at present: the answer is {'null' if value is None else 'NaN'}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SignalError(f"{what} is not a number: the answer {_describe(value)}")
    if not 0 <= value <= LARGEST:
        shown = value if isinstance(value, float) else max(-(10**99), min(value, 10**99))
        raise SignalError(f"{what} is {shown:.6g}: a figure from 0 to {LARGEST:g} is needed")
    return float(value)


def _place(steps: tuple[str | int, ...]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")[:80] or "the document"


def _describe(value: Any) -> str:
    """Never quotes a text: the author of a scaler would read in its status what only the controller may
    fetch.
    """
    if isinstance(value, dict):
        names = ", ".join(sorted(str(name)[:40] for name in list(value)[:8]))
        return f"is an object with {names or 'nothing'}{' and others' if len(value) > 8 else ''}"
    if isinstance(value, list):
        return f"is a list of {len(value)}"
    if isinstance(value, str):
        return f"is a text of {len(value)} characters"
    return f"is {str(value).lower()[:40]}"
