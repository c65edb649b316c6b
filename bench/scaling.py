"""Compares scaling policies on the conversation trace that Azure published, request by request.

It is `cotenant simulate scaling` with `--service 0.1,0.8,5 --cold-start 10,45,180 --target 3,5`, and what is
promised beside it. Nothing is timed: the figures are the same on every machine.

    python -m bench.scaling [--trace FILE] [--seed 1]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure, record
from cotenant.simulate.scaling.comparing import compare, make_loads, mean
from cotenant.simulate.scaling.running import Conditions
from cotenant.simulate.scaling.trace import read_trace

POLICIES = ("ours", "seed", "hpa", "keda", "knative", "erlang")
SERVICES, COLD_STARTS, TARGETS = (0.1, 0.8, 5.0), (10.0, 45.0, 180.0), (3.0, 5.0)
LATE, TURNS, HOURS = 0.08, 0.6, 1.60
"""What the mean of ours is promised to be at most, each rounded as it is printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    here = Path(__file__).resolve().parent.parent
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    shared = here.parent / "shared" / "data" / "azure-llm" / "conversation.csv"
    parser.add_argument("--trace", type=Path, default=shared)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if not options.trace.is_file():
        sys.exit(f"no trace {options.trace}: name Azure's conversation trace by --trace (AzurePublicDataset)")
    loads = make_loads(read_trace(str(options.trace)), SERVICES, None, options.seed)
    rows = compare(loads, COLD_STARTS, TARGETS, POLICIES, Conditions(seed=options.seed))
    figures = []
    for row in rows:
        what = f"service {row.load.service:g} s, cold start {row.cold_start:g} s, target {row.target:g} s"
        print(what)
        for name, each in row.outcomes.items():
            text = f"{each.late_percent:.2f} / {each.turns_per_hour:.0f} / {each.replica_hours:.1f}"
            figures.append(Figure(what, text, column=name))
            print(f"  {name:8} {text}")
        figures.append(Figure(what, f"{row.bound_hours:.1f}", column="bound"))
    kept = False
    for name in rows[0].outcomes:
        each = mean(rows, name)
        text = f"{each.late_percent:.2f} / {each.turns_per_hour:.1f} / {each.times_bound:.2f}"
        promised = f"ours: {LATE} / {TURNS} / {HOURS:.2f}" if name == "ours" else ""
        figures.append(Figure("mean; hours as multiple of the bound", text, promised, name))
        print(f"mean {name:8} {text} x bound  {promised}")
        if name == "ours":
            kept = (
                round(each.late_percent, 2) <= LATE
                and round(each.turns_per_hour, 1) <= TURNS
                and round(each.times_bound, 2) <= HOURS
            )
    record("bench.scaling", figures, f"seed {options.seed}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
