"""Faults at random: processes killed with -9 or stopped, for a while, one or several at a time."""

import random
import threading
import time
from dataclasses import dataclass
from typing import Self

from cluster.testbed.component import Component

from .installation import Installation

SCHEDULER_WARM = 2.0
"""Seconds that it takes to read the cluster after its start."""


@dataclass(frozen=True)
class Fault:
    component: str
    how: str
    """`killed` or `stopped`."""
    after: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.component} {self.how} for {self.seconds:.1f} s"


class Chaos:
    """`calm` is true while every component is up, by the word of each.

    kube-scheduler is not struck, but it ends itself when it finds, after the API server was away, that a bound pod
    has become another one of the same name. A kubelet would start it again; here that is done by `_keep`.
    """

    def __init__(self, installation: Installation, seed: int) -> None:
        self._installation = installation
        self._chance = random.Random(seed)
        self._scheduler = installation.control_plane.scheduler
        self._quiet = False
        self._keeping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self.faults: list[str] = []
        self.struck = 0
        self.calm_seconds = 0.0

    def __enter__(self) -> Self:
        self._keeping.set()
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._keeping.clear()
        self._keeper.join()

    @property
    def calm(self) -> bool:
        return self._quiet and self._scheduler.running

    def _keep(self) -> None:
        while self._keeping.is_set():
            if not self._scheduler.running:
                self._quiet = False
                self.faults.append("kube-scheduler ended itself")
                self._scheduler.start()
                self._scheduler.wait()
                time.sleep(SCHEDULER_WARM)
            time.sleep(0.1)

    def be_calm(self, seconds: float) -> None:
        """Everything is up, and stays so for this time."""
        self._installation.wait(120)
        self._quiet = True
        self.faults.append(f"(all up at {time.strftime('%H:%M:%S')})")
        time.sleep(seconds)
        self._quiet = False
        self.calm_seconds += seconds

    def strike(self) -> None:
        """One to three components at once; afterwards all run again."""
        victims = self._chance.sample(self._components(), self._chance.randint(1, 3))
        planned = [(each, self._fault(each)) for each in victims]
        threads = [threading.Thread(target=_inflict, args=each) for each in planned]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.faults += [str(fault) for _, fault in planned]
        self.struck += len(planned)

    def _components(self) -> list[Component]:
        agent = [self._installation.agent] if self._installation.agent else []
        return [*self._installation.servers, *agent, self._installation.control_plane.apiserver]

    def _fault(self, component: Component) -> Fault:
        longest = 4.0 if component is self._installation.control_plane.apiserver else 14.0
        return Fault(
            component.name,
            self._chance.choice(("killed", "stopped")),
            self._chance.uniform(0, 3),
            self._chance.uniform(0, longest),
        )


def _inflict(component: Component, fault: Fault) -> None:
    time.sleep(fault.after)
    if fault.how == "killed":
        component.kill()
        time.sleep(fault.seconds)
        component.start()
    else:
        component.pause()
        time.sleep(fault.seconds)
        component.resume()
