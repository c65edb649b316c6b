"""Runs `cotenant agent`, which kills itself at one step of the first container start that it serves.

`python -m cluster.programs.killed_agent STEP -- agent --settings FILE`. The product has no such hook: the steps are
wrapped here, from outside. In their order: `asked` (the kubelet has said who it is), `read` (the pod has been read),
`retired` (the old slot is gone), `recorded` (the owner is written), `created` (the files stand under another name),
`made` (the slot stands, the kubelet has no answer).
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from cotenant.cli.main import main
from cotenant.hardware import slots as files
from cotenant.kube.agent import starting
from cotenant.kube.agent.node_slots import NodeSlots

STEPS = ("asked", "read", "retired", "recorded", "created", "made")
WRAPPED: dict[str, tuple[Any, str]] = {
    "asked": (starting, "holder_of"),
    "read": (starting, "granted_slot"),
    "retired": (NodeSlots, "_retire"),
    "recorded": (NodeSlots, "_write_owner"),
    "created": (files, "create"),
    "made": (NodeSlots, "make"),
}


def arm(step: str) -> None:
    where, name = WRAPPED[step]
    real: Callable[..., Any] = getattr(where, name)
    making = [step != "retired"]  # slots are also retired when their device is allocated: not that one

    def struck(*arguments: Any, **named: Any) -> Any:
        answer = real(*arguments, **named)
        if making[0]:
            print(f"killed once {step}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(where, name, struck)
    if not making[0]:
        make: Callable[..., Any] = NodeSlots.make

        def begun(*arguments: Any) -> None:
            making[0] = True
            make(*arguments)

        NodeSlots.make = begun  # type: ignore[method-assign]


if __name__ == "__main__":
    arm(sys.argv[1])
    sys.argv = ["cotenant", *sys.argv[3:]]
    main()
