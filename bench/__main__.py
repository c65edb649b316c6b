"""All measurements, one after another."""

from __future__ import annotations

import subprocess
import sys

MODULES = ("bench.shim", "bench.run", "bench.local", "bench.placement", "bench.scan", "bench.extender")


def main() -> int:
    kept = True
    for module in MODULES:
        print(f"\n== {module} ==", flush=True)
        kept &= subprocess.run([sys.executable, "-m", module], check=False).returncode == 0
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
