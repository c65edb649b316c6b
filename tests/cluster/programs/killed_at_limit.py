"""Runs `cotenant agent`, which kills itself when it limits the first container by its cgroup.

`python -m cluster.programs.killed_at_limit STEP -- agent --settings FILE`. STEP: `before` (the cgroup is found, nothing is
set) or `after` (the limit is set, and nobody has read it back or reported it). The product has no such hook.
"""

import os
import signal
import sys
from pathlib import Path

from cotenant.cli.main import main
from cotenant.hardware.driver_limits import DriverLimits


def arm(step: str) -> None:
    real = DriverLimits.set

    def struck(self: DriverLimits, uuid: str, cgroup: Path, size: int | None) -> None:
        probes = cgroup.name.startswith("cotenant-probe-")
        if step == "after" or probes:
            real(self, uuid, cgroup, size)
        if not probes:
            print(f"killed {step} the limit", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    DriverLimits.set = struck  # type: ignore[method-assign]


if __name__ == "__main__":
    arm(sys.argv[1])
    sys.argv = ["cotenant", *sys.argv[3:]]
    main()
