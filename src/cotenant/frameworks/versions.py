"""Looks up which version of a framework is installed beside this interpreter."""

from __future__ import annotations

import re
from importlib import metadata


def installed(package: str) -> tuple[int, ...] | None:
    """Returns the version of a package; None if it is not installed here."""
    try:
        return parse(metadata.version(package))
    except metadata.PackageNotFoundError:
        return None


def parse(text: str) -> tuple[int, ...] | None:
    """Reads the leading numbers of a version: `2.10.0a0+git1` is (2, 10, 0). None if it has none."""
    found = re.match(r"\d{1,9}(\.\d{1,9}){0,3}", text or "")
    return None if found is None else tuple(int(part) for part in found[0].split("."))
