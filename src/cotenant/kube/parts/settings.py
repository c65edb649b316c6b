"""Composes the type of all settings from the sections that parts bring."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, fields, make_dataclass

from cotenant.kube.parts.part import Part
from cotenant.kube.settings import Settings


def settings_type(parts: Iterable[type[Part]]) -> type[Settings]:
    """Adds to Settings the sections that it does not declare itself, with the defaults of their classes."""
    known = {each.name for each in fields(Settings)}
    own = (part.section for part in parts)
    added = {name: kind for name, kind in (each for each in own if each is not None) if name not in known}
    if not added:
        return Settings
    new = [(name, kind, field(default_factory=kind)) for name, kind in added.items()]
    composed: type[Settings] = make_dataclass("Settings", new, bases=(Settings,), frozen=True)
    return composed
