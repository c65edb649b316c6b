"""Measures what a scaling decision costs: time, and the bytes that its memory takes in a status.

    python -m bench.decide

A thousand scalers with loads of their own, each followed for longer than any need is remembered. Then rounds:
one decision for each scaler.
"""

from __future__ import annotations

import json
import random
import sys
import time

from bench.figures import Figure, record
from cotenant.core.scaling import Memory, Sample, ScalingPolicy, decide

SCALERS = 1000
POLLS = 300
"""Of 5 s: longer than the longest time for which a need is remembered."""
ROUNDS = 15
PROMISED_US = 100.0
PROMISED_BYTES = 12 * 1024


class Scaler:
    """One scaler and the queue that it sees: Poisson-like arrivals around a level that changes slowly."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.takes = self.chance.choice([0.1, 0.8, 5.0])
        self.busy = self.chance.choice([0.0, 0.5, 3.0, 20.0])
        self.policy = ScalingPolicy(maximum=64, service=self.takes)
        self.memory, self.ready, self.now = Memory(), 1, 1e9
        self.arrived = self.completed = self.backlog = 0

    def sample(self) -> Sample:
        """Advances the queue by one poll."""
        self.now += self.policy.poll
        new = int(self.busy * self.policy.poll / self.takes * self.chance.uniform(0.6, 1.4))
        done = min(self.backlog + new, int(self.ready * self.policy.poll / self.takes))
        self.arrived, self.completed = self.arrived + new, self.completed + done
        self.backlog += new - done
        in_flight = min(self.ready, int(self.busy))
        return Sample(
            backlog=self.backlog,
            arrived=self.arrived,
            completed=self.completed,
            in_flight=in_flight,
            active=in_flight,
            ready=self.ready,
            room=8,
        )

    def decide(self, sample: Sample) -> None:
        decision = decide(self.policy, self.memory, sample, self.now)
        self.memory, self.ready = decision.memory, decision.replicas


def main() -> int:
    scalers = [Scaler(seed) for seed in range(SCALERS)]
    for scaler in scalers:
        for _ in range(POLLS):
            scaler.decide(scaler.sample())
    rounds = list[float]()
    for _ in range(ROUNDS):
        samples = [scaler.sample() for scaler in scalers]
        begin = time.process_time()
        for scaler, sample in zip(scalers, samples, strict=True):
            scaler.decide(sample)
        rounds.append((time.process_time() - begin) / SCALERS * 1e6)
    decision = min(rounds)  # The least disturbed by others on this machine.
    begin = time.process_time()
    texts = [json.dumps(scaler.memory.to_json(), separators=(",", ":")) for scaler in scalers]
    writing = (time.process_time() - begin) / SCALERS * 1e6
    begin = time.process_time()
    for text in texts:
        Memory.from_json(json.loads(text))
    reading = (time.process_time() - begin) / SCALERS * 1e6
    sizes = sorted(map(len, texts))
    figures = [
        Figure("one decision, 1,000 scalers in turn", f"{decision:.0f} µs", f"{PROMISED_US:.0f} µs"),
        Figure("a memory as JSON, median", f"{sizes[SCALERS // 2]:,} bytes"),
        Figure("a memory as JSON, largest", f"{sizes[-1]:,} bytes", f"{PROMISED_BYTES:,} bytes"),
        Figure("a memory to JSON", f"{writing:.0f} µs"),
        Figure("a memory from JSON", f"{reading:.0f} µs"),
    ]
    for each in figures:
        print(f"{each.what:40} {each.measured:>14} {each.promised:>14}")
    record("bench.decide", figures)
    return 0 if decision <= PROMISED_US and sizes[-1] <= PROMISED_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
