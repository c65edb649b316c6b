"""Writes the pages of docs/ that are generated from the code, for `make docs`. Tests keep them equal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from cotenant.observe.metrics_reference import reference

ROOT = Path(__file__).resolve().parent.parent


def written() -> Iterator[tuple[Path, str]]:
    """Every generated page with its content."""
    yield ROOT / "docs" / "metrics.md", reference()


def main() -> int:
    for path, text in written():
        path.write_text(text)
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
