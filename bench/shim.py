"""Measures the shim's overhead: the same calls with and without it, in turns in one run.

    python -m bench.shim

Driver calls go to the stand-in driver with a launch time of zero, so what remains is the shim's own cost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.figures import Figure, record
from cotenant.hardware import libraries, slots
from cotenant.hardware.standin import driver as standin

HERE = Path(__file__).resolve().parent
GIB = 1 << 30
ROUNDS = 5
PROMISED = {"alloc+free, 1 process": 200, "alloc+free, 32 processes": 400, "launch": 5, "meminfo": 2000}


def compile_probe(folder: Path) -> Path:
    """Compiles the program for this machine's own glibc, as a user's program would be."""
    probe = folder / "shim_bench"
    command = [sys.executable, "-m", "ziglang", "cc", "-O2", "-o", str(probe), str(HERE / "shim.c"), "-ldl"]
    subprocess.run(command, check=True)
    return probe


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def measure(probe: Path, env: dict[str, str]) -> list[float]:
    done = subprocess.run([probe, "calls"], env=env, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def neighbours(stack: ExitStack, probe: Path, env: dict[str, str], count: int) -> None:
    for _ in range(count):
        process = subprocess.Popen([probe, "hold"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stack.callback(process.wait)
        stack.callback(process.stdin.close)  # type: ignore[union-attr]
        process.stdout.readline()  # type: ignore[union-attr]


def compare(probe: Path, direct: dict[str, str], shimmed: dict[str, str]) -> list[tuple[float, float]]:
    """Returns medians of rounds in turns, so that a busy moment affects both."""
    rounds = [(measure(probe, direct), measure(probe, shimmed)) for _ in range(ROUNDS)]
    return [
        (median([plain[i] for plain, _ in rounds]), median([with_shim[i] for _, with_shim in rounds]))
        for i in range(3)
    ]


def _figure(what: str, times: tuple[float, float], promised: int) -> Figure:
    """Makes a figure in ns; the start of a process in ms."""
    extra = times[1] - times[0]
    if promised >= 1_000_000:
        return Figure(what, f"{extra / 1e6:+.2f} ms", f"+{promised / 1e6:g} ms")
    return Figure(what, f"{extra:+,.1f} ns", f"+{promised:,} ns")


def main() -> int:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, ExitStack() as stack:
        folder = Path(name)
        probe = compile_probe(folder)
        state, slot = folder / "standin", folder / "slot"
        standin.create(state, standin.parse_spec("1x80GiB"), launch_seconds=0)
        card = standin.StandIn(state).cards()[0]
        slots.create(
            slot, slots.Limits("bench", "enforce", (slots.CardLimit(card.uuid, 64 * GIB, 256 << 20),))
        )
        direct = standin.environment(state, dict(os.environ))
        shimmed = {**direct, "COTENANT_SLOT": str(slot), "LD_PRELOAD": str(libraries.shim())}

        alone = compare(probe, direct, shimmed)
        neighbours(stack, probe, shimmed, 31)
        crowded = compare(probe, direct, shimmed)
        spawn = [str(probe), "spawn", "200", str(libraries.shim())]
        times = subprocess.run(
            spawn, env={**direct, "COTENANT_SLOT": str(slot)}, check=True, capture_output=True, text=True
        )
        starts = [float(word) * 1000 for word in times.stdout.split()]

    rows = {
        "alloc+free, 1 process": alone[0],
        "alloc+free, 32 processes": crowded[0],
        "launch": alone[1],
        "meminfo": alone[2],
        "process start-up": (starts[0], starts[1]),
    }
    promised = {**PROMISED, "process start-up": 1_000_000}
    print(f"{'median, ns':<26}{'direct':>12}{'shimmed':>12}{'extra':>12}{'promised':>12}")
    kept = True
    for what, (plain, with_shim) in rows.items():
        extra = with_shim - plain
        kept &= extra <= promised[what]
        print(f"{what:<26}{plain:>12,.1f}{with_shim:>12,.1f}{extra:>+12,.1f}{promised[what]:>12,}")
    record("bench.shim", (_figure(what, rows[what], promised[what]) for what in rows))
    print(json.dumps({what: {"direct_ns": a, "shimmed_ns": b} for what, (a, b) in rows.items()}))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
