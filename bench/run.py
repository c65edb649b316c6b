"""Measures what `cotenant run` costs before its command starts and after it has ended.

    python -m bench.run

Wall time of `cotenant run -- true` beside plain `true`, in turns, and where the time goes: the same run once
more in pieces, each step timed inside one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import Figure, record

ROUNDS = 31
PROMISED_MS = 200

STEPS = """
import time
begin = time.perf_counter()
spent = {}

def timed(owner, name, step):
    real = getattr(owner, name)
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        try:
            return real(*args, **kwargs)
        finally:
            spent[step] = spent.get(step, 0) + time.perf_counter() - start
    setattr(owner, name, wrapper)

import sys, os, json
import cotenant.cli.main as cli
import cotenant.cli.run
import cotenant.hardware.nvml as nvml
import cotenant.local.store as store
import cotenant.local.run as run
spent["imports"] = time.perf_counter() - begin
timed(nvml.Nvml, "read", "NVML")
timed(store.LedgerStore, "_connection", "ledger")
timed(store.Books, "write", "ledger")
timed(run.supervise, "supervise", "the command itself")
timed(run, "_prepare", "slot, fork and record")
began = time.perf_counter()
try:
    cli.call()
finally:
    spent["all of it"] = time.perf_counter() - began + spent["imports"]
    print(json.dumps(spent), file=sys.stderr)
"""


def wall(command: list[str], env: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, env=env, check=True)
    return (time.perf_counter() - begin) * 1000


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def breakdown(env: dict[str, str]) -> dict[str, float]:
    """Measures each step: medians in ms over a few runs."""
    rows = []
    for _ in range(7):
        done = subprocess.run(
            [sys.executable, "-c", STEPS, "run", "--gpu-memory", "1Gi", "--", "true"],
            env=env,
            check=True,
            capture_output=True,
            text=True,
        )
        rows.append(json.loads(done.stderr.splitlines()[-1]))
    return {step: median([row.get(step, 0.0) for row in rows]) * 1000 for step in rows[0]}


def main() -> int:
    cotenant = str(Path(sys.executable).with_name("cotenant"))
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "COTENANT_HOME": home, "COTENANT_SIMULATE": "8xA100-80GB"}
        wall([cotenant, "run", "--", "true"], env)  # the first run makes the ledger
        interpreter = [sys.executable, "-c", "pass"]
        plain, run, python = [], [], []
        for _ in range(ROUNDS):
            plain.append(wall(["true"], env))
            run.append(wall([cotenant, "run", "--gpu-memory", "1Gi", "--", "true"], env))
            python.append(wall(interpreter, env))
        steps = breakdown(env)
    over = median(run) - median(plain)
    print(f"plain true                       {median(plain):8.1f} ms")
    print(f"cotenant run -- true             {median(run):8.1f} ms")
    print(f"cotenant run over plain true     {over:8.1f} ms   (promised: under {PROMISED_MS})")
    print("of which")
    print(f"  an empty Python interpreter    {median(python):8.1f} ms")
    whole = Figure("`cotenant run -- true` over plain `true`", f"{over:.0f} ms", f"{PROMISED_MS} ms")
    inside = [("an empty Python interpreter", median(python)), *steps.items()]
    parts = [Figure(f"of which {what}", f"{spent:.0f} ms") for what, spent in inside if what != "all of it"]
    record("bench.run", [whole, *parts])
    known = 0.0
    for step, spent in steps.items():
        if step != "all of it":
            known += spent
            print(f"  {step:<30} {spent:8.1f} ms")
    print(f"  everything else                {steps['all of it'] - known:8.1f} ms")
    return 0 if over < PROMISED_MS else 1


if __name__ == "__main__":
    sys.exit(main())
