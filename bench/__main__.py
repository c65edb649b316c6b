"""Runs the benches one after another, and writes what they measured to docs/benchmarks.md.

python -m bench [MODULE ...]      all of them, or those that are named
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import figures


def main(modules: list[str]) -> int:
    unknown = [each for each in modules if each not in figures.BENCHES]
    if unknown:
        sys.exit(f"{', '.join(unknown)}: not a bench; there are {', '.join(figures.BENCHES)}")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(folder, "figures")
        recorded.touch()
        env = {**os.environ, figures.RECORD: str(recorded)}
        for module in modules or figures.BENCHES:
            print(f"\n== {module} ==", flush=True)
            if subprocess.run([sys.executable, "-m", module], env=env, check=False).returncode:
                failed.append(module)
        figures.keep(recorded)
    print(f"\nwrote {figures.PAGE.relative_to(figures.HERE.parent)}")
    if failed:
        print(f"a promise was not kept, or it could not run: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
