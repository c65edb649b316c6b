"""Plays the demo scene by scene and checks each of them.

A scene returns checks: what was expected, what was measured, and whether they agree. Memory is measured by
what the simulated driver counts; it shares no code with the ledger or the shim.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable

from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.units import format_bytes
from cotenant.demo import release
from cotenant.demo.check import Check
from cotenant.demo.stage import Actor, Stage, until
from cotenant.hardware.standin.driver import StandInCard

SPEC = "2x16GiB"
PARTS = 16
"""Sizes in the demo are in sixteenths of a GPU."""
SMALLEST = 8 << 30
MIB, GIB = 1 << 20, 1 << 30
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
SUCCESS = "CUDA_SUCCESS"
IDLE = 3.0
ACTIVE = 2.0
"""An active grant may look idle for this many seconds: the last activity is recorded to the second."""


class Story:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._screen = stage.screen
        first, second = _pair(stage.cards.cards())
        self._cards = {first.uuid: "GPU 0", second.uuid: "GPU 1"}
        self._only = ("--gpu", first.uuid, "--gpu", second.uuid) if len(stage.cards.cards()) > 2 else ()
        self._capacity = first.capacity
        self._unit = first.capacity // PARTS // MIB * MIB
        self._cast: dict[str, Actor] = {}
        self._shared = first.uuid
        self._other = second.uuid

    def play(self) -> list[Check]:
        """Plays all scenes and returns their checks; the last one has failed if the demo broke off."""
        scenes: tuple[tuple[str, Callable[[], Iterable[Check]]], ...] = (
            ("sharing", self._share),
            ("a greedy one", self._be_greedy),
            ("waiting in line", self._wait),
            ("resizing", self._resize),
            ("kill -9", self._kill),
            ("idleness", self._idle),
            ("everybody leaves", self._leave),
            ("to zero and back", self._release),
        )
        checks: list[Check] = []
        for number, (part, scene) in enumerate(scenes, start=1):
            self._screen.heading(f"{number}. {part}")
            try:
                checks += scene()
            except (CotenantError, OSError, subprocess.SubprocessError) as error:
                checks.append(Check(part, "the demo goes on", str(error), happened=False))
                break
        return checks

    def _share(self) -> Iterable[Check]:
        self._screen.say(
            "Three commands ask for a part of a GPU each. Without shares they would need three GPUs, or "
            "hope for the best."
        )
        for name, grant, hold in (("chat", 6, 4), ("vision", 5, 3), ("notebook", 4, 1)):
            self._run(name, grant, hold, "--placement", "binpack")
        sees = {name: actor.answer()["sees"] for name, actor in self._cast.items()}
        self._stage.show("gpus")
        held = [self._stage.held_by(actor) for actor in self._cast.values()]
        cards = {uuid for each in held for uuid in each}
        self._shared = next(iter(cards), self._shared)
        self._other = next(uuid for uuid in self._cards if uuid != self._shared)
        total = sum(each.get(self._shared, 0) for each in held)
        yield Check(
            "sharing",
            "3 commands on one GPU",
            f"{len(held)} on {'one GPU' if len(cards) == 1 else f'{len(cards)} GPUs'}, "
            f"{format_bytes(total)} held there",
            len(cards) == 1 and all(held) and total == self._stage.cards.used(self._shared),
        )
        yield Check(
            "",
            "each sees a GPU as large as its grant",
            ", ".join(format_bytes(size) for size in sees.values()),
            sees == {"chat": 6 * self._unit, "vision": 5 * self._unit, "notebook": 4 * self._unit},
        )

    def _be_greedy(self) -> Iterable[Check]:
        vision, neighbours = self._cast["vision"], (self._cast["chat"], self._cast["notebook"])
        before = self._stage.held_by(vision).get(self._shared, 0)
        free = self._capacity - self._stage.cards.used(self._shared)
        self._screen.say(
            f"`vision` was granted {self._size(5)}, holds {format_bytes(before)} and now asks CUDA for "
            f"{self._size(4)} more. The GPU itself has {format_bytes(free)} that are not in use."
        )
        steps = [actor.ask("look")["steps"] for actor in neighbours]
        launches = self._card(self._shared).launches
        said = self._take(vision, 4)
        after = self._stage.held_by(vision).get(self._shared, 0)
        never_more = self._card(self._shared).peak <= self._capacity - free
        further = [0, 0]

        def look() -> bool:
            further[:] = [a.ask("look")["steps"] - n for a, n in zip(neighbours, steps, strict=True)]
            return all(n >= 10 for n in further)

        until(look, "the neighbours go on computing", pause=0.25)
        self._screen.say(
            f"It is stopped at its own limit; since then `chat` has computed {further[0]} more steps and "
            f"`notebook` {further[1]}."
        )
        launched = self._card(self._shared).launches - launches
        yield Check(
            "a greedy one",
            f"refused beyond {self._size(5)}, though the GPU has room",
            f"{_plain(said)}, holds {format_bytes(after)} as before, {format_bytes(free)} are free",
            said == OUT_OF_MEMORY and before == after > 0 and never_more and free >= 4 * self._unit,
        )
        yield Check(
            "",
            "its neighbours go on",
            f"{further[0]} and {further[1]} steps more, {launched} launches on the GPU",
            min(further) > 0 and launched >= sum(further),
        )

    def _wait(self) -> Iterable[Check]:
        self._screen.say(
            f"`train` takes {self._size(12)} of the other GPU. `batch` asks for {self._size(10)}, and no GPU "
            "has that much left: it waits in line and says why."
        )
        train = self._run("train", 12, 8, "--placement", "binpack")
        train.answer()
        batch = self._run("batch", 10, 8)
        until(lambda: "in line" in batch.errors(), "batch says that it waits")
        for line in batch.errors().splitlines():
            self._screen.heard(line)
        self._stage.show("ps")
        waits = len(self._stage.listing("ps")["line"])
        there = {each.pid for each in self._stage.cards.processes() if self._other in each.used}
        self._screen.say("`train` exits.")
        began = time.monotonic()
        code = train.end()
        batch.answer()
        took = time.monotonic() - began
        held = self._stage.held_by(batch).get(self._other, 0)
        self._screen.heard(batch.errors().splitlines()[-1])
        yield Check(
            "waiting in line",
            "waits while there is no room",
            f"{waits} in line, {'nothing' if there == {train.pid} else 'something'} of it on the GPU",
            waits == 1 and there == {train.pid},
        )
        yield Check(
            "",
            "starts when room appears",
            f"holds {format_bytes(held)} {took:.1f} s after `train` was asked to exit",
            code == 0 and held > 8 * self._unit,
        )

    def _resize(self) -> Iterable[Check]:
        batch = self._cast["batch"]
        self._screen.say(
            f"`batch` needs {self._size(3)} more than it can get. Its grant is made larger while it runs."
        )
        first = self._take(batch, 3)
        self._stage.show("resize", "batch", self._size(14))
        pid = batch.pid
        second = self._take(batch, 3)
        held = self._stage.held_by(batch).get(self._other, 0)
        yield Check(
            "resizing",
            "refused before, success after",
            f"{_plain(first)}, then {_plain(second)}: the same process holds {format_bytes(held)}",
            (first, second) == (OUT_OF_MEMORY, SUCCESS) and held > 11 * self._unit and batch.pid == pid,
        )

    def _kill(self) -> Iterable[Check]:
        batch = self._cast["batch"]
        self._screen.say(
            "The worst that can happen: `kill -9` of the runner. Its command still runs, so its memory stays "
            "charged; then `kill -9` of the command, too."
        )
        self._screen.typed(f"kill -9 {batch.runner.pid}")
        os.kill(batch.runner.pid, signal.SIGKILL)
        batch.runner.wait()
        self._stage.show("ps")
        orphan = self._stage.held_by(batch).get(self._other, 0)
        charged = [grant["name"] for grant in self._stage.listing("ps")["grants"]]
        if batch.pid is not None:
            self._screen.typed(f"kill -9 {batch.pid}")
            os.kill(batch.pid, signal.SIGKILL)
        took = until(lambda: not self._stage.held_by(batch), "the GPU's memory is free again")
        batch.over = True
        self._stage.show("gpus")
        left = self._stage.cards.used(self._other)
        granted = {card["uuid"]: card["granted"] for card in self._stage.listing("gpus")["gpus"]}
        yield Check(
            "kill -9",
            "runner killed: the memory stays charged",
            f"it holds {format_bytes(orphan)} and is {'still' if 'batch' in charged else 'not'} charged",
            orphan > 0 and "batch" in charged,
        )
        slots = len(os.listdir(self._stage.home.slots))
        yield Check(
            "",
            "command killed, too: nothing is left",
            f"{left} bytes held, {granted[self._other]} charged, {slots} slots for the other 3",
            left == granted[self._other] == 0 and slots == 3 and took < 5,
        )

    def _idle(self) -> Iterable[Check]:
        notebook = self._cast["notebook"]
        rested = notebook.ask("rest")["steps"]
        self._screen.say("`notebook` stops computing, as notebooks do. That is measured, too:")
        times: dict[str, float] = {}

        def look() -> bool:
            times.update({g["name"]: g["idle_seconds"] or 0.0 for g in self._stage.listing("ps")["grants"]})
            return times.get("notebook", 0.0) >= IDLE

        until(look, "the notebook is reported as idle", pause=0.3)
        self._stage.show("ps")
        others = max(times.get("chat", 99.0), times.get("vision", 99.0))
        same = notebook.ask("look")["steps"] == rested
        yield Check(
            "idleness",
            f"one idle for {IDLE:.0f} s, the others not",
            f"notebook {times['notebook']:.1f} s, the others {others:.1f} s at most",
            times["notebook"] >= IDLE and others < ACTIVE and same,
        )

    def _leave(self) -> Iterable[Check]:
        self._screen.say("All exit and free what they held.")
        codes = {name: self._cast[name].end() for name in ("chat", "vision", "notebook")}
        self._stage.show("ps")
        self._stage.show("gpus")
        used = sum(self._stage.cards.used(uuid) for uuid in self._cards)
        listing = self._stage.listing("gpus")
        granted = sum(card["granted"] for card in listing["gpus"])
        slots = len(os.listdir(self._stage.home.slots))
        yield Check(
            "everybody leaves",
            "all exit with 0, the greedy one too",
            ", ".join(f"{name} {code}" for name, code in codes.items()),
            set(codes.values()) == {0},
        )
        yield Check(
            "",
            "the GPUs are as free as before",
            f"{used} bytes held, {granted} charged, {slots} slots",
            used == granted == slots == 0,
        )

    def _release(self) -> Iterable[Check]:
        if libraries := release.missing():
            self._screen.say(
                f"This part needs {', '.join(libraries)}, which is not installed: pip install "
                "'cotenant[scaling]'. It is left out."
            )
            return ()
        return release.release(self._stage, self._only, self._size(4), self._size(3))

    def _run(self, name: str, grant: int, hold: int, *options: str) -> Actor:
        actor = self._stage.run(name, self._size(grant), self._size(hold), *self._only, *options)
        self._cast[name] = actor
        return actor

    def _take(self, actor: Actor, parts: int) -> str:
        """Asks the command to allocate more and returns CUDA's result."""
        said: str = actor.ask(f"take {self._size(parts)}")["said"]
        self._screen.heard(f"{actor.name}: cuMemAlloc({self._size(parts)}) -> {said}")
        return said

    def _card(self, uuid: str) -> StandInCard:
        return next(card for card in self._stage.cards.cards() if card.uuid == uuid)

    def _size(self, parts: int) -> str:
        size = parts * self._unit
        return f"{size // GIB}Gi" if size % GIB == 0 else f"{size // MIB}Mi"


def _pair(cards: Iterable[StandInCard]) -> tuple[StandInCard, StandInCard]:
    """Finds two GPUs of the same size that are large enough for the demo."""
    seen: dict[int, StandInCard] = {}
    for card in cards:
        if card.capacity >= SMALLEST and card.capacity in seen:
            return seen[card.capacity], card
        seen[card.capacity] = card
    raise BadInput(
        f"the demo needs two equal GPUs of {format_bytes(SMALLEST)} or more, such as --simulate {SPEC}"
    )


def _plain(said: str) -> str:
    return {OUT_OF_MEMORY: "out of memory", SUCCESS: "success"}.get(said, said)
