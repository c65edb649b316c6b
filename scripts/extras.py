"""Print what the named extras of pyproject.toml require, for `pip install -r`.

    python scripts/extras.py test clients

The package itself is installed without build isolation, so that the compiler is fetched once. That setting
would hold for every source package among these, too; so they are installed apart.
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
