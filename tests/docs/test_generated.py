"""The pages and pictures that `make docs` writes are those in docs/."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def generated() -> list[tuple[Path, str]]:
    before = sys.path[:]
    try:
        return list(runpy.run_path(str(ROOT / "scripts" / "docs.py"))["written"]())
    finally:
        sys.path[:] = before


WRITTEN = generated()


@pytest.mark.parametrize(("path", "text"), WRITTEN, ids=[path.name for path, _ in WRITTEN])
def test_a_generated_file_is_what_make_docs_writes(path: Path, text: str):
    assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run `make docs`"
