"""Load: pods created, deleted and created again under the same names, for as long as a test lets it run."""

import http.client
import random
import threading
import time
from collections.abc import Callable

from cluster.testbed.api import Api, Object, Refused

from .manifests import pods_of

LOST = (OSError, http.client.HTTPException, ValueError)
THREADS = 4


class Traffic:
    """Each thread has names of its own. What the API server refuses for now (it is down, or the webhook is) is tried again."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        names: int,
        make: Callable[[str, random.Random], Object],
        *,
        seed: int,
        life: tuple[float, float],
        pause: tuple[float, float] = (0.0, 2.0),
    ) -> None:
        """`make` writes a pod of that name; `life` and `pause`: seconds, least and most, of each and between two."""
        self._api = api
        self._pods = pods_of(namespace)
        self._make = make
        self._life, self._pause = life, pause
        self._stopped = threading.Event()
        self.created = 0
        self.deleted = 0
        self.refused: dict[str, int] = {}
        """Why the API server did not take a pod, and how often."""
        shares = [[f"pod-{number}" for number in range(names)][part::THREADS] for part in range(THREADS)]
        self._threads = [
            threading.Thread(target=self._run, args=(share, random.Random(f"{seed}/{part}")), daemon=True)
            for part, share in enumerate(shares)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """What stands, stays."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(180)

    def _run(self, names: list[str], chance: random.Random) -> None:
        due = {name: time.monotonic() + chance.uniform(0, self._pause[1]) for name in names}
        there: dict[str, str] = {}
        while not self._stopped.is_set():
            name = min(due, key=lambda each: due[each])
            if (early := due[name] - time.monotonic()) > 0:
                self._stopped.wait(min(early, 0.2))
                continue
            try:
                if name in there:
                    self._delete(name, there[name])
                    del there[name]
                    due[name] = time.monotonic() + chance.uniform(*self._pause)
                else:
                    there[name] = self._create(name, chance)
                    due[name] = time.monotonic() + chance.uniform(*self._life)
            except Refused as refused:
                self._note(f"{refused.code} {str(refused)[:160]}", unless=refused.code in (404, 409))
                due[name] = time.monotonic() + chance.uniform(0.2, 1.0)
            except LOST as lost:
                self._note(type(lost).__name__)
                due[name] = time.monotonic() + chance.uniform(0.2, 1.0)

    def _create(self, name: str, chance: random.Random) -> str:
        try:
            made = self._api.create(self._pods, self._make(name, chance))
        except Refused as refused:
            if refused.code != 409:
                raise
            # The one before is still on its way out, or the answer to its creation was lost.
            made = self._api.get(f"{self._pods}/{name}")
            if "deletionTimestamp" in made["metadata"]:
                raise
        self.created += 1
        return str(made["metadata"]["uid"])

    def _delete(self, name: str, uid: str) -> None:
        try:
            self._api.delete(f"{self._pods}/{name}", preconditions={"uid": uid})
            self.deleted += 1
        except Refused as refused:
            if refused.code not in (404, 409):
                raise

    def _note(self, why: str, *, unless: bool = False) -> None:
        """The one before of the same name may still be on its way out: that is what recreating is like."""
        if not unless:
            self.refused[why] = self.refused.get(why, 0) + 1
