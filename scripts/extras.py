"""Print what the named extras of pyproject.toml require, for `pip install -r`.

    python scripts/extras.py test clients

The package itself is installed without build isolation, so that the compiler is fetched once. That setting would
hold for every source package among these, too; so they are installed apart.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main() -> None:
    project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
    for extra in sys.argv[1:]:
        print("\n".join(project["optional-dependencies"][extra]))


if __name__ == "__main__":
    main()
