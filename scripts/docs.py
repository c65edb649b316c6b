"""Writes the pages and pictures of docs/ that are generated, for `make docs`. Tests keep them equal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import concepts_picture  # noqa: E402

from bench import figures  # noqa: E402
from cotenant.cli import reference as commands_reference  # noqa: E402
from cotenant.kube.scaler import reference as scaler_reference  # noqa: E402
from cotenant.observe import metrics_reference  # noqa: E402


def written() -> Iterator[tuple[Path, str]]:
    """Yields every generated file with its content."""
    docs = ROOT / "docs"
    yield docs / "commands.md", commands_reference.reference()
    yield docs / "metrics.md", metrics_reference.reference()
    yield docs / "gpuscaler-fields.md", scaler_reference.reference()
    yield docs / "benchmarks.md", figures.page()
    yield docs / "concepts-light.svg", concepts_picture.picture(concepts_picture.LIGHT)
    yield docs / "concepts-dark.svg", concepts_picture.picture(concepts_picture.DARK)


def main() -> int:
    for path, text in written():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
