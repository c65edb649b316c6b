"""Runs many `cotenant run` at once, kills them at bad moments, and puts a big demand behind many small ones.

    python -m bench.local [--runs 200] [--kills 300] [--patience 5]

A watcher in a separate process reads what the stand-in driver counts, which shares no code with the shim or
the ledger: it must never see a GPU beyond its memory, nor anything left when all have ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import Figure, record
from cotenant.hardware.standin import driver as standin

MIB, GIB = 1 << 20, 1 << 30
COTENANT = str(Path(sys.executable).with_name("cotenant"))

JOB = """
import ctypes, sys, time
size, seconds = int(sys.argv[1]), float(sys.argv[2])
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_ulonglong()), ctypes.c_size_t(1 << 40)) == 2
print("allocated", flush=True)
time.sleep(seconds)
"""


def watch(
    state: str, stop: multiprocessing.synchronize.Event, worst: multiprocessing.sharedctypes.Synchronized
) -> None:
    """Returns the highest use of any GPU, as a share of its memory, and the number of samples."""
    cards = standin.StandIn(Path(state))
    described = cards.cards()
    while not stop.is_set():
        for card in described:
            worst[0] = max(worst[0], cards.used(card.uuid) / card.capacity)
        worst[1] += 1


class Machine:
    """Simulated GPUs with a separate home."""

    def __init__(self, folder: Path, spec: str, **env: str) -> None:
        self.env = {**os.environ, "COTENANT_HOME": str(folder), "COTENANT_SIMULATE": spec, **env}
        exports = subprocess.run(
            [COTENANT, "standin"], env=self.env, check=True, capture_output=True, text=True
        )
        (line,) = [line for line in exports.stdout.splitlines() if "COTENANT_STANDIN=" in line]
        self.state = line.split("COTENANT_STANDIN=", 1)[1].strip("'\"; ")
        self.cards = standin.StandIn(Path(self.state))

    def run(
        self, size: int, seconds: float, hold: int | None = None, **popen: object
    ) -> subprocess.Popen[str]:
        command = [COTENANT, "run", "--gpu-memory", str(size), "--", sys.executable, "-c", JOB]
        command += [str(hold if hold is not None else size - 256 * MIB), str(seconds)]
        return subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen
        )

    def charged(self) -> int:
        done = subprocess.run(
            [COTENANT, "gpus", "-o", "json"], env=self.env, check=True, capture_output=True, text=True
        )
        return sum(card["granted"] for card in json.loads(done.stdout)["gpus"])

    def used(self) -> int:
        return sum(self.cards.used(card.uuid) for card in self.cards.cards())


def concurrent(folder: Path, runs: int) -> bool:
    machine = Machine(folder, "8x16GiB")
    rng = random.Random(1)
    stop, worst = multiprocessing.Event(), multiprocessing.Array("d", 2)
    watcher = multiprocessing.Process(target=watch, args=(machine.state, stop, worst))
    watcher.start()
    began = time.monotonic()
    jobs = [
        machine.run(rng.randrange(512 * MIB, 15 * GIB, 2 * MIB), rng.uniform(0.2, 1.5)) for _ in range(runs)
    ]
    failed = [job.communicate()[1] for job in jobs if job.wait() != 0]
    took = time.monotonic() - began
    stop.set()
    watcher.join()
    left, charged = machine.used(), machine.charged()
    peak = max(card.peak / card.capacity for card in machine.cards.cards())
    print(f"{runs} concurrent runs of random sizes on 8 cards: {took:.1f} s, {len(failed)} failed")
    print(f"  fullest card: {worst[0]:.1%} in {worst[1]:,.0f} looks, {peak:.1%} by the driver's own peak")
    print(f"  left on the cards: {left} bytes, still charged: {charged} bytes")
    over = "no GPU ever over its memory" if worst[0] <= 1 and peak <= 1 else "a GPU was over its memory"
    record(
        "bench.local",
        [
            Figure(
                f"{runs} commands of random sizes at once on 8 GPUs",
                f"{len(failed)} failed, {over}, {left + charged} bytes left",
                "0 failed, never over, 0 bytes left",
            )
        ],
    )
    for text in failed[:3]:
        print(f"  {text.strip().splitlines()[-1:]}")
    return not failed and worst[0] <= 1 and peak <= 1 and left == charged == 0


def killed(folder: Path, rounds: int) -> bool:
    """Kills the process with the shim, the runner, or both, at a random moment from start to end."""
    machine = Machine(folder, "2x16GiB")
    rng = random.Random(2)
    leaked = 0
    started = 0
    for number in range(rounds):
        jobs = [machine.run(4 * GIB, 0.3, start_new_session=True) for _ in range(2)]
        if number % 2:  # in the middle of its work; else at any moment from its very start
            for job in jobs:
                job.stdout.readline()  # type: ignore[union-attr]
        time.sleep(rng.uniform(0, 0.05 if number % 2 else 0.4))
        for job in jobs:
            kind = rng.choice(("command", "runner", "both"))
            children = [int(child) for child in _children(job.pid)]
            started += bool(children)
            if kind in ("runner", "both"):
                _kill(job.pid)
            if kind in ("command", "both"):
                for child in children:
                    _kill(child)
        for job in jobs:
            job.communicate()
        if number % 25 == 24 or number == rounds - 1:
            deadline = time.monotonic() + 5
            while (machine.used() or machine.charged()) and time.monotonic() < deadline:
                time.sleep(0.05)
            leaked += machine.used() + machine.charged()
    print(
        f"{rounds} rounds of kill -9, two runs each, {started} of them with a command: {leaked} bytes leaked"
    )
    record("bench.local", [Figure(f"{rounds} rounds of kill -9", f"{leaked} bytes leaked", "0 bytes")])
    return leaked == 0


def behind_a_stream(folder: Path, patience: float) -> bool:
    """Measures how long a demand of 14 GiB waits on a GPU of 16 GiB behind a stream of 3 GiB ones."""
    longest = 2.0
    machine = Machine(folder, "1x16GiB", COTENANT_PATIENCE=f"{patience}s")
    rng = random.Random(3)
    small: list[subprocess.Popen[str]] = []

    def stream() -> None:
        small[:] = [job for job in small if job.poll() is None]
        while len(small) < 9:
            small.append(machine.run(3 * GIB, rng.uniform(0.5, longest)))

    stream()
    time.sleep(1.5)
    began = time.monotonic()
    big = machine.run(14 * GIB, 0.1)
    assert big.stdout is not None
    os.set_blocking(big.stdout.fileno(), False)
    while not big.stdout.readline():
        stream()
        time.sleep(0.05)
        if time.monotonic() - began > patience + 60:
            break
    waited = time.monotonic() - began
    for job in [*small, big]:
        job.communicate()
    start_up = 1.0  # interpreter and first allocation of jobs on a busy machine
    print(
        f"14 GiB behind a stream of 3 GiB jobs of up to {longest} s: started after {waited:.1f} s "
        f"(set time {patience} s + longest job {longest} s)"
    )
    jobs = f"a stream of 3 GiB commands of up to {longest:g} s, patience {patience:g} s"
    what = f"14 GiB behind {jobs}: starts after"
    record("bench.local", [Figure(what, f"{waited:.1f} s", f"{patience + longest + start_up:g} s")])
    return waited <= patience + longest + start_up


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--patience", type=float, default=5)
    parser.add_argument("--only", choices=("concurrent", "killed", "stream"))
    args = parser.parse_args()
    parts = {
        "concurrent": lambda folder: concurrent(folder, args.runs),
        "killed": lambda folder: killed(folder, args.kills),
        "stream": lambda folder: behind_a_stream(folder, args.patience),
    }
    kept = True
    for name, part in parts.items():
        if args.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                kept &= part(Path(folder))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
