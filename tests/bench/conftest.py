"""Benches that compare: what they call a difference, and what they do not."""

from __future__ import annotations

import needs
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items, __file__, "machine")
