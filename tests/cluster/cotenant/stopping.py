"""Runs `cotenant server`, which kills or stops itself at one step of the first bind that it does.

`python -m cluster.cotenant.stopping STEP HOW -- server --settings FILE`. The product has no such hook: the step is
wrapped here, from outside. Steps, in their order: `decided` (the cards are chosen), `charged`, `sending` (all has
been checked, the Binding is not sent yet), `answered` (the API server has bound it, nobody was told).
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from cotenant.cli.main import main
from cotenant.kube.api.client import Client
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger

STEPS = ("decided", "charged", "sending", "answered")
HOW = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


class Once:
    def __init__(self, how: str) -> None:
        self._signal: signal.Signals | None = HOW[how]

    def strike(self) -> None:
        if self._signal is not None:
            struck, self._signal = self._signal, None
            print(f"{struck.name} now", flush=True)
            os.kill(os.getpid(), struck)


def arm(step: str, once: Once) -> None:
    charge: Callable[..., None] = ClusterLedger.charge
    bind = Client.bind

    def charged(self: ClusterLedger, *arguments: Any) -> None:
        if step == "decided":
            once.strike()
        charge(self, *arguments)
        if step == "charged":
            once.strike()

    async def bound(self: Client, *arguments: Any, **named: Any) -> Any:
        if step == "sending":
            once.strike()
        answer = await bind(self, *arguments, **named)
        if step == "answered":
            once.strike()
        return answer

    ClusterLedger.charge = charged  # type: ignore[method-assign]
    Client.bind = bound  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    arm(sys.argv[1], Once(sys.argv[2]))
    sys.argv = ["cotenant", *sys.argv[4:]]
    main()
