"""Many at once: no card is ever over-granted, nobody is forgotten, and the line is cheap to stand in."""

import os
import random
import threading
import time
from pathlib import Path

from cotenant.hardware.standin.driver import StandIn


def test_thirty_at_once_never_exceed_a_card(simulate):
    """Each takes all that it asked for; the stand-in's own count is the judge."""
    machine = simulate("2x16GiB")
    machine.settle()  # the cards are there before the watcher looks
    dice = random.Random(7)
    most: dict[str, int] = {}
    over = threading.Event()

    def watch():
        cards = StandIn(machine.home.standin)
        while not over.wait(0.03):
            for card in cards.cards():
                most[card.uuid] = max(most.get(card.uuid, 0), card.used)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        runs = []
        for _ in range(30):
            size = dice.randrange(2, 11)
            words = (size * 1024 - 256, f"sleep:{dice.uniform(0, 0.2):.2f}")
            runs.append(machine.holder(f"{size}Gi", *words))
        done = [process.communicate(timeout=90) for process in runs]
    finally:
        over.set()
        watcher.join()
    assert [process.returncode for process in runs] == [0] * 30
    assert {out for out, _ in done} == {"ok\n"}, "what was granted was really there"
    peaks = {card.uuid: card.peak for card in machine.cards.cards()}
    assert all(0 < most[uuid] <= peak <= 16 << 30 for uuid, peak in peaks.items())
    assert machine.rows() == []


def test_standing_in_line_costs_next_to_nothing(simulate):
    machine = simulate("1x16GiB")
    first = machine.holder("16Gi", "ready", "hold")
    assert first.stdout.readline() == "ready\n"
    waiting = [machine.run("16Gi", "true") for _ in range(5)]
    for process in waiting:
        assert "in line" in process.stderr.readline()
    time.sleep(1)
    tick = os.sysconf("SC_CLK_TCK")

    def spent():
        fields = [Path(f"/proc/{p.pid}/stat").read_text().rsplit(")", 1)[1].split() for p in waiting]
        return sum(int(f[11]) + int(f[12]) for f in fields) / tick

    before = spent()
    time.sleep(2)
    assert (spent() - before) / 2 < 0.25, "seconds of CPU a second, for all of them"


def test_a_big_demand_behind_a_stream_of_small_ones_starts(simulate):
    """Smaller ones pass it for as long as patience says; then its card drains."""
    machine = simulate("1x16GiB")
    env = {"COTENANT_PATIENCE": "1s"}
    ended = threading.Event()

    def stream():
        while not ended.is_set():
            machine("run", "--gpu-memory", "3Gi", "--", "sleep", "0.5", env=env)

    small = [threading.Thread(target=stream) for _ in range(3)]
    for thread in small:
        thread.start()
    try:
        time.sleep(0.5)
        began = time.monotonic()
        big = machine("run", "--gpu-memory", "14Gi", "--", "true", env=env)
        assert big.returncode == 0
        assert time.monotonic() - began < 12
    finally:
        ended.set()
        for thread in small:
            thread.join()
    assert machine.rows() == []
