"""Prints what the named extras of pyproject.toml require, for `pip install -r`.

    python scripts/extras.py test clients

The package itself is installed without build isolation, so that the compiler is downloaded once. These are
installed separately, since that setting would apply to every source package among them too. An extra that
contains another, as `cotenant[scaling]`, is printed with all that is in that one.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path


def requirements(extras: Mapping[str, list[str]], extra: str) -> Iterator[str]:
    for each in extras[extra]:
        inner = re.fullmatch(r"cotenant\[([\w-]+)\]", each)
        yield from requirements(extras, inner[1]) if inner else (each,)


def main() -> None:
    file = Path(__file__).resolve().parent.parent / "pyproject.toml"
    extras = tomllib.loads(file.read_text())["project"]["optional-dependencies"]
    for extra in sys.argv[1:]:
        print("\n".join(requirements(extras, extra)))


if __name__ == "__main__":
    main()
