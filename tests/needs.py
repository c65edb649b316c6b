"""Marks tests with what they need, so that `-m` selects by need and no list of files has to be kept.

A folder says it in its conftest.py, once for all of its tests; where only some need it, by the fixture that
they ask for. The markers themselves are declared in pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def mark(items: Iterable[pytest.Item], conftest: str, marker: str, fixture: str | None = None) -> None:
    """Marks the tests in the folder of a conftest.py; with a fixture's name only those that use it.

    Every conftest.py asks this of every test, so paths are compared as text: by their parents it took a third of the collection.
    """
    folder = f"{Path(conftest).parent}/"
    for item in items:
        if str(item.path).startswith(folder) and (
            fixture is None or fixture in getattr(item, "fixturenames", ())
        ):
            item.add_marker(marker)
