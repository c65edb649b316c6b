"""Compares scaling policies on loads that no parameter was chosen for: generated ones, and a real one bent.

    python -m bench.loads [--trace FILE] [--seed 1]

Nothing is timed: the figures are the same on every machine. `cotenant simulate scaling` does the same for a
trace of yours.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.figures import Figure, record
from cotenant.simulate.scaling.comparing import Load, Row, compare, mean
from cotenant.simulate.scaling.running import Conditions
from cotenant.simulate.scaling.trace import read_trace
from cotenant.simulate.scaling.workload import Workload

POLICIES = ("ours", "seed", "hpa", "keda", "knative")
COLD_STARTS, TARGET = (10.0, 45.0, 180.0), 5.0
HOUR = 3600.0

Busy = Callable[[float], float]
"""Returns the replicas that the load keeps busy at a second."""
Draw = Callable[[random.Random], float]


def exponential(mean: float) -> Draw:
    return lambda chance: chance.expovariate(1 / mean)


def pareto(mean: float, shape: float) -> Draw:
    """Returns heavy-tailed times, of which none is above 200 times the mean."""
    least = mean * (shape - 1) / shape
    return lambda chance: min(least * chance.paretovariate(shape), 200 * mean)


def lognormal(mean: float, sigma: float) -> Draw:
    return lambda chance: chance.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


def poisson(busy: Busy, service: float, hours: float, seed: int, draw: Draw | None = None) -> Workload:
    """Makes messages that come at random, as many as keep `busy` replicas at work."""
    chance, takes = random.Random(seed), draw or exponential(service)
    most = 1.01 * max(busy(at * hours * HOUR / 5000) for at in range(5001)) / service
    at, arrivals, services = 0.0, array("d"), array("d")
    while (at := at + chance.expovariate(most)) < hours * HOUR:
        if chance.random() * most * service < busy(at):
            arrivals.append(at)
            services.append(takes(chance))
    return Workload(array("d", [each - arrivals[0] for each in arrivals]), services)


def on_off(busy: float, seconds: float) -> Busy:
    return lambda at: busy if int(at // seconds) % 2 == 0 else 0.0


def walk(busy: float, seed: int) -> Busy:
    """Returns a level that changes every minute by about 15%, for four hours."""
    chance, levels = random.Random(seed), [busy]
    for _ in range(240):
        levels.append(min(max(levels[-1] * math.exp(chance.gauss(0, 0.15)), busy / 8), busy * 5))
    return lambda at: levels[int(at // 60)]


def generated(seed: int) -> dict[str, Workload]:
    def step(at: float) -> float:
        return 15.0 if HOUR < at < 2 * HOUR else 3.0

    return {
        "0.2 busy, 0.8 s": poisson(lambda _: 0.2, 0.8, 3, seed),
        "2 busy, 0.8 s": poisson(lambda _: 2.0, 0.8, 3, seed),
        "20 busy, 5 s": poisson(lambda _: 20.0, 5.0, 2, seed),
        "waves of 2 h, 1 to 15 busy, 0.8 s": poisson(
            lambda at: 8 - 7 * math.cos(at * math.pi / HOUR), 0.8, 4, seed
        ),
        "on and off, 2 min each, 6 busy, 0.8 s": poisson(on_off(6, 120), 0.8, 3, seed),
        "on and off, 10 min each, 10 busy, 5 s": poisson(on_off(10, 600), 5.0, 3, seed),
        "2 min of 10 busy every 20 min, else 1, 0.8 s": poisson(
            lambda at: 10.0 if at % 1200 >= 1080 else 1.0, 0.8, 3, seed
        ),
        "slowly from 1 to 30 busy, 0.8 s": poisson(lambda at: 1 + 29 * at / (3 * HOUR), 0.8, 3, seed),
        "3 busy, an hour of 15, 3 again, 0.8 s": poisson(step, 0.8, 3, seed),
        "the same, 5 s": poisson(step, 5.0, 3, seed),
        "5 busy, 0.8 s with a heavy tail (Pareto 1.5)": poisson(
            lambda _: 5.0, 0.8, 3, seed, pareto(0.8, 1.5)
        ),
        "8 busy, 5 s with a heavy tail (log-normal 2)": poisson(
            lambda _: 8.0, 5.0, 3, seed, lognormal(5.0, 2)
        ),
        "a random walk around 8 busy, 0.8 s": poisson(walk(8, seed), 0.8, 4, seed),
        "a random walk around 12 busy, 5 s": poisson(walk(12, seed), 5.0, 4, seed),
    }


def bent(real: Workload, seed: int) -> dict[str, Workload]:
    """Returns the real trace backwards, at half and double speed, and with its minutes in another order."""
    arrivals, services, end = real.arrivals, real.services, real.arrivals[-1]
    minutes: list[list[tuple[float, float]]] = [[] for _ in range(int(end // 60) + 1)]
    for at, service in zip(arrivals, services, strict=True):
        minutes[int(at // 60)].append((at % 60, service))
    random.Random(seed).shuffle(minutes)
    mixed = [(60 * at + each, service) for at, minute in enumerate(minutes) for each, service in minute]
    return {
        "Azure's trace backwards": Workload([end - at for at in reversed(arrivals)], [*reversed(services)]),
        "the same at double speed": Workload([at / 2 for at in arrivals], services),
        "the same at half speed": Workload([at * 2 for at in arrivals], services),
        "the same, its minutes shuffled": Workload([at for at, _ in mixed], [each for _, each in mixed]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    shared = Path(__file__).resolve().parents[2] / "shared" / "data" / "azure-llm" / "conversation.csv"
    parser.add_argument("--trace", type=Path, default=shared, help="Azure's conversation trace")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if not options.trace.is_file():
        sys.exit(f"no trace {options.trace}: name Azure's conversation trace by --trace (AzurePublicDataset)")
    real = read_trace(str(options.trace)).workload.scaled(5.0)
    loads = {**generated(options.seed), **bent(real, options.seed)}
    figures, rows = list[Figure](), list[Row]()
    for what, workload in loads.items():
        load = Load(workload, workload.mean_service, 1)
        found = compare([load], COLD_STARTS, [TARGET], POLICIES, Conditions(seed=options.seed))
        figures += _figures(what, found)
        rows += found
    figures += _figures("mean", rows)
    record("bench.loads", figures, f"seed {options.seed}")
    ours, *others = (mean(rows, name) for name in POLICIES)
    promptest, calmest = (
        min(each.late_percent for each in others),
        min(each.turns_per_hour for each in others),
    )
    return int(ours.late_percent > promptest or ours.turns_per_hour > calmest)


def _figures(what: str, rows: Sequence[Row]) -> list[Figure]:
    found = []
    for name in rows[0].outcomes:
        each = mean(rows, name)
        text = f"{each.late_percent:.2f} / {each.turns_per_hour:.1f} / {each.times_bound:.2f}"
        found.append(Figure(what, text, column=name))
    print(what, *(f"  {each.column:8} {each.measured}" for each in found), sep="\n", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
