"""Writes the Grafana dashboards of the chart from their descriptions in grafana/, for `make deploy`.

A dashboard's JSON repeats the same settings for every panel. Tests keep the files equal to the descriptions,
and run every query in a real Prometheus.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from grafana.fleet import FLEET  # noqa: E402
from grafana.rendering import render  # noqa: E402
from grafana.scalers import SCALERS  # noqa: E402
from grafana.workload import WORKLOAD  # noqa: E402

FOLDER = ROOT / "charts" / "cotenant" / "monitoring" / "dashboards"
ALL = (FLEET, WORKLOAD, SCALERS)


def written() -> Iterator[tuple[Path, str]]:
    """Yields every dashboard's file with its content."""
    for each in ALL:
        yield FOLDER / f"{each.name}.json", json.dumps(render(each), indent=1) + "\n"


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in written():
        path.write_text(text)
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
