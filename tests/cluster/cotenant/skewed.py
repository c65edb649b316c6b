"""Runs `cotenant ...` with a wall clock that is off by as many seconds as a file says, which may change at any time.

`python -m cluster.cotenant.skewed FILE -- server --settings FILE`. Only the wall clock: the kernel's monotonic
clocks never jump, on any machine.
"""

import sys
import time
from pathlib import Path

REAL = time.time_ns


def offset() -> int:
    try:
        return int(FILE.read_text())
    except (OSError, ValueError):
        return 0


if __name__ == "__main__":
    FILE = Path(sys.argv[1])
    time.time_ns = lambda: REAL() + offset() * 10**9
    time.time = lambda: time.time_ns() / 1e9
    sys.argv = ["cotenant", *sys.argv[3:]]
    from cotenant.cli.main import main

    main()
