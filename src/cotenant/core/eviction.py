"""Names what happens to a pod that holds more GPU memory than its limit."""

from __future__ import annotations

from typing import Literal, get_args

Eviction = Literal["off", "dry-run", "on"]
"""`dry-run`: an event says that it would be evicted."""
EVICTIONS: tuple[Eviction, ...] = get_args(Eviction)
"""From the mildest to the strictest."""
