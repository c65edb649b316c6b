"""Decides how long a pod must be idle before that is reported, so that a pod which works every few seconds
does not keep the API server busy.

A pod that went back to work soon after it was reported idle is reported three times as late for the next ten
minutes. So with 10 s: a launch every 11 s costs two writes in ten minutes. The worst is a launch a little
more than every 30 s: two writes each, four in a minute. What is reported late loses nothing but that: the
condition names the time of the last activity. Work is reported at once, always.

There are other ways to change often: a file that is damaged and restored, a container that is ready and
unready. So between two reports of one pod that are not of work there is always that time, too.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

_SOON = 3
"""As a multiple of `after`: a pod that works again within this time was reported too early."""
_CALM = 600.0
"""Seconds for which it is reported later then."""


@dataclass
class Rhythm:
    """Remembers which pods went back to work too soon. Times are seconds of a monotonic clock."""

    after: float
    """How long a pod must be idle, if it did not."""
    _until: dict[str, float] = field(default_factory=dict, init=False)
    _reported: dict[str, float] = field(default_factory=dict, init=False)
    """When a pod was last reported as idle or unknown."""

    def needed(self, uid: str, now: float) -> float:
        """Returns how long this pod must be idle now to be reported."""
        return _SOON * self.after if now < self._until.get(uid, now) else self.after

    def resumed(self, uid: str, idle_for: float, now: float) -> None:
        """Notes that a pod that was reported idle works again, after this time."""
        if idle_for < _SOON * self.after:
            self._until[uid] = now + _CALM

    def may_report(self, uid: str, now: float) -> bool:
        """Whether the last report of this pod is long enough ago for another one that is not of work."""
        last = self._reported.get(uid)
        return last is None or now - last >= self.needed(uid, now)

    def reported(self, uid: str, now: float) -> None:
        """Notes that a pod was reported as idle or unknown."""
        last = self._reported.get(uid)
        if last is not None and now - last < _SOON * self.after:
            self._until[uid] = now + _CALM
        self._reported[uid] = now

    def keep(self, uids: Container[str]) -> None:
        """Forgets all other pods."""
        self._until = {uid: until for uid, until in self._until.items() if uid in uids}
        self._reported = {uid: at for uid, at in self._reported.items() if uid in uids}
