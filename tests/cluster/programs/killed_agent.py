"""Runs `cotenant agent`, which kills itself at one step of the start of the pod that is called like the step.

`python -m cluster.programs.killed_agent STEP -- agent --settings FILE`. Other pods, which the kubelet may try again at
any moment, do not start meanwhile. The product has no such hook: the steps are wrapped here, from outside. In their order: `asked` (the kubelet has said who it is), `read` (the pod has been read),
`retired` (the old slot is gone), `recorded` (the owner is written), `created` (the files stand under another name),
`made` (the slot stands, the kubelet has no answer).
"""

import os
import signal
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from cotenant.cli.main import main
from cotenant.hardware import slots as files
from cotenant.kube.agent.classic.pod_resources import Holder
from cotenant.kube.agent.slots import starting
from cotenant.kube.agent.slots.checking import StartRefused
from cotenant.kube.agent.slots.node_slots import NodeSlots

STEPS = ("asked", "read", "retired", "recorded", "created", "made")
WRAPPED: dict[str, tuple[Any, str]] = {
    "asked": (starting, "holder_of"),
    "read": (starting, "granted_slot"),
    "retired": (NodeSlots, "_retire"),
    "recorded": (files, "write_record"),
    "created": (files, "create"),
    "made": (NodeSlots, "make"),
}


STARTING: ContextVar[bool] = ContextVar("starting", default=False)
"""In the calls that the kubelet's question about that pod leads to; slots are also retired at other times."""


def arm(step: str) -> None:
    holder_of = starting.holder_of

    def asked(*arguments: Any) -> Holder:
        holder = holder_of(*arguments)
        if holder.pod != step:
            raise StartRefused(f"pod {holder.pod}: it is not its turn. It is tried again")
        STARTING.set(True)
        return holder

    starting.holder_of = asked
    where, name = WRAPPED[step]
    real: Callable[..., Any] = getattr(where, name)

    def struck(*arguments: Any, **named: Any) -> Any:
        answer = real(*arguments, **named)
        if STARTING.get():
            print(f"killed once {step}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(where, name, struck)


if __name__ == "__main__":
    arm(sys.argv[1])
    sys.argv = ["cotenant", *sys.argv[3:]]
    main()
