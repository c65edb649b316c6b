"""Measures a round in which many scalers read their queues from one Redis.

python -m bench.signals [--scalers 1000] [--rounds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench import figures
from bench.figures import Figure
from cotenant.signals.opening import open_signal
from cotenant.signals.servers import Servers
from cotenant.signals.specification import QueueSpecification

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

PROMISED = 1.0
"""Seconds of a round of 1,000 scalers."""


async def no_secrets(name: str, key: str) -> str:
    raise KeyError(name, key)


async def measured(url: str, scalers: int, rounds: int) -> tuple[float, float]:
    """Returns the median of a round's wall time and of its CPU time, in seconds."""
    servers = Servers()
    signals = []
    for at in range(scalers):
        written = {"redis": {"url": url, "list": f"queue-{at}"}, "inFlight": {"list": f"working-{at}"}}
        signals.append(open_signal(msgspec.convert(written, QueueSpecification), no_secrets, servers))
    walls, cpus = [], []
    for _ in range(rounds + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(signal.read() for signal in signals))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    await servers.close()
    return statistics.median(walls[1:]), statistics.median(cpus[1:])


def main() -> int:
    from signals.servers import Redis

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scalers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(Path(folder))
        server.start()
        try:
            wall, cpu = asyncio.run(measured(server.url, asked.scalers, asked.rounds))
        finally:
            server.stop()
    rows = [
        Figure(f"a round of {asked.scalers:,} scalers", f"{wall * 1000:.0f} ms", f"at most {PROMISED:g} s"),
        Figure("CPU time of the round", f"{cpu * 1000:.0f} ms"),
    ]
    for row in rows:
        print(f"{row.what}: {row.measured}")
    figures.record("bench.signals", rows)
    return int(wall > PROMISED)


if __name__ == "__main__":
    sys.exit(main())
