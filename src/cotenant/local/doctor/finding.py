"""What a doctor of one machine finds."""

from __future__ import annotations

from cotenant.core.finding import ERROR, WARNING, Finding

__all__ = ["ERROR", "FIX", "WARNING", "Finding"]

FIX = "run `cotenant doctor --fix`"
