"""Describes the settings of one framework that follow from a share."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """What a framework is told. Empty if nothing is to be set."""

    environment: dict[str, str] = field(default_factory=dict)
    """Variables that must be set before the program starts."""
    arguments: tuple[str, ...] = ()
    """Arguments of the server's command line."""
    code: str = ""
    """A line of Python, or of a configuration file, where the others do not suffice."""
    notes: tuple[str, ...] = ()
    """What to know about them."""
