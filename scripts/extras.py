"""Prints what the named extras of pyproject.toml require, for `pip install -r`.

    python scripts/extras.py test clients

The package itself is installed without build isolation, so that the compiler is downloaded once. These are
installed separately, since that setting would apply to every source package among them too.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main() -> None:
    file = Path(__file__).resolve().parent.parent / "pyproject.toml"
    extras = tomllib.loads(file.read_text())["project"]["optional-dependencies"]
    for extra in sys.argv[1:]:
        print("\n".join(extras[extra]))


if __name__ == "__main__":
    main()
