"""Computes the JSON patch (RFC 6902) between two JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cotenant.kube.api.patches import Operation


def json_patch(old: Any, new: Any, path: str = "") -> Iterator[Operation]:
    """Yields the operations that turn `old` into `new`. Lists of equal length are compared item by item."""
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                yield {"op": "remove", "path": f"{path}/{_escape(key)}"}
        for key, value in new.items():
            if key in old:
                yield from json_patch(old[key], value, f"{path}/{_escape(key)}")
            else:
                yield {"op": "add", "path": f"{path}/{_escape(key)}", "value": value}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from json_patch(before, after, f"{path}/{index}")
    elif old != new or type(old) is not type(new):
        yield {"op": "replace", "path": path, "value": new}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
