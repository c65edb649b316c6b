"""Writes times as the API server does: UTC, in whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(at: datetime | float) -> str:
    """Formats a moment, or seconds of the Unix epoch: `2026-11-01T12:00:00Z`."""
    moment = at.astimezone(UTC) if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
