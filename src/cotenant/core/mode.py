"""Names what happens to an allocation beyond the limit: it is counted, warned about, or refused."""

from __future__ import annotations

from typing import Literal, get_args

from cotenant.core.errors import BadInput

Mode = Literal["observe", "warn", "enforce"]

MODES: tuple[Mode, ...] = get_args(Mode)
"""From the mildest to the strictest. The position of a mode is its number in a slot's `limits`, which running
containers read: a mode is never moved.
"""

DEFAULT_MODE: Mode = "enforce"
"""Used where no mode was chosen: a limit is a limit."""


def parse_mode(text: str, field: str) -> Mode:
    """Reads a mode, which must be written exactly as in MODES. `field` begins the message if it is not one.

    White space is not removed: the policy `cotenant-modes` compares the text as it is. If ` observe` were a
    mode here, it would pass that policy and weaken what a namespace enforces.
    """
    for mode in MODES:
        if text == mode:
            return mode
    raise BadInput(f"{field}: {text[:40]!a} is not one of {', '.join(MODES)}")
