"""Imports what only `cotenant up` and its like need, and says how to install it where it is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cotenant.core.errors import CotenantError

EXTRA = "scaling"
"""Of pyproject.toml."""


class ExtraMissing(CotenantError):
    """A library that the base installation does not bring is not installed."""


@contextlib.contextmanager
def scaling_extra() -> Iterator[None]:
    """Turns a library that cannot be imported into a sentence with the remedy."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name == "cotenant":
            raise
        raise ExtraMissing(
            f"{name} is not installed, which workloads and their queues need: pip install "
            f"'cotenant[{EXTRA}]', or in the source tree pip install '.[{EXTRA}]'"
        ) from None
