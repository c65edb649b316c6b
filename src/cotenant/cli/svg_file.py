"""Writes the picture that `--plot FILE.svg` asks for."""

from __future__ import annotations

from pathlib import Path

from cotenant.core.errors import BadInput, CotenantError


def check_svg(path: str | None) -> None:
    """Refuses a path that cannot be written to, before anything long is done."""
    if path is not None and not path.endswith(".svg"):
        raise BadInput(f"plot: {path!r} does not end with .svg: only SVG is written")
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise BadInput(f"plot: {path!r}: its folder does not exist: create it, or name another")
    if path is not None and Path(path).is_dir():
        raise BadInput(f"plot: {path!r} is a folder: name a file in it")


def write_svg(path: str, picture: str) -> None:
    try:
        Path(path).write_text(picture, encoding="utf-8")
    except OSError as error:
        raise CotenantError(f"plot: cannot write {path}: {error.strerror or error}") from None
