"""Kills the server that leads, and the API server, with -9 at random moments, and starts them again."""

import random
import time

from cluster.testbed.api import Refused
from cluster.testbed.component import Component

from .chaos import Chaos
from .installation import LOST, Installation

PAUSE = (3.0, 24.0)
"""Seconds between two kills. Another server leads ten seconds after the leader's end: some come before, some after."""
AWAY = (0.0, 3.0)
"""Seconds until what was killed is started again; the API server takes some more to answer."""


class Kills(Chaos):
    """Both at least once; the one may well be killed while the other is not back yet. A server that ends by itself is started
    again, as a kubelet would, and told of.
    """

    def __init__(self, installation: Installation, seed: int) -> None:
        super().__init__(installation, seed)
        self._moments = random.Random(f"{seed}/kills")
        self._next = ["leader", "API server"]
        self._moments.shuffle(self._next)
        self.leaders = 0
        self.api_servers = 0
        self.ended: list[str] = []
        """The last words of servers that were not killed."""

    def go_on(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, self._moments.uniform(*PAUSE)))
            if time.monotonic() < end or self._next:
                self.kill_one()

    def kill_one(self) -> None:
        """One that is not there is waited for a little, and let off otherwise."""
        whom = self._next.pop() if self._next else self._moments.choice(("leader", "API server"))
        away = self._moments.uniform(*AWAY)
        if whom == "leader":
            victim = self._leader()
            self.leaders += victim is not None
        else:
            victim = self._installation.control_plane.apiserver
            self.api_servers += 1
        if victim is None:
            return
        self.faults.append(f"{time.strftime('%H:%M:%S')} {victim.name} killed for {away:.1f} s")
        self.struck += 1
        victim.kill()
        time.sleep(away)
        victim.start()
        self.start_ended()

    def start_ended(self) -> None:
        for each in self._installation.servers:
            if not each.running:
                self.ended.append(f"{each.name}: {each.tail(1)}")
                each.start()

    def _leader(self, patience: float = 12.0) -> Component | None:
        end = time.monotonic() + patience
        while time.monotonic() < end:
            try:
                if (leader := self._installation.leader()) is not None:
                    return leader
            except (Refused, *LOST):
                pass
            time.sleep(0.2)
        return None
