"""Measures time and memory of `cotenant recommend` for 30 days of 500 containers, from a file and from
Prometheus.

python -m bench.recommend --scale [--interval 300]

The command runs as people run it, in a process of its own. The file is written before; Prometheus is played
by a server that answers range queries with the same samples, at the step that it is asked for.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bench.figures import Figure, record

CONTAINERS, DAYS = 500, 30
PROMISED_SECONDS = 30
VARIANTS = 40
"""Different rounds of samples, which repeat: writing a file must not take longer than reading it."""
DAY = 86400


def names() -> list[tuple[str, str]]:
    return [(f"workload-{number // 5}", f"pod-{number:04d}-x7k2p") for number in range(CONTAINERS)]


def levels(seed: int = 1) -> list[list[int]]:
    source = random.Random(seed)
    bases = [source.randint(1 << 30, 40 << 30) for _ in range(CONTAINERS)]
    return [[base + source.getrandbits(28) for base in bases] for _ in range(VARIANTS)]


def write_file(path: Path, interval: int) -> int:
    """Writes the samples in the order of time; returns how many there are."""
    rounds = [
        "".join(f"@,{workload},{pod},{size}\n" for (workload, pod), size in zip(names(), sizes, strict=True))
        for sizes in levels()
    ]
    rows = 0
    with path.open("w", encoding="ascii") as file:
        file.write("timestamp,workload,container,bytes\n")
        for number, at in enumerate(range(1_700_000_000, 1_700_000_000 + DAYS * DAY, interval)):
            file.write(rounds[number % VARIANTS].replace("@", str(at)))
            rows += CONTAINERS
    return rows


class _Prometheus(BaseHTTPRequestHandler):
    """Answers as Prometheus does, for one metric; texts are put together, since it must not be slower than
    that.
    """

    labels = tuple(
        json.dumps(
            {"namespace": "team", "pod": f"{workload}-{at % 5}", "container": "main", "uuid": f"GPU-{at}"}
        )
        for at, (workload, _) in enumerate(names())
    )
    tails = tuple(tuple(f',"{size}"]' for size in sizes) for sizes in zip(*levels(), strict=True))
    """The end of a point, by series and round."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        is_range = parts.path.endswith("query_range")
        found: list[str] = []
        if "peak_bytes" in asked["query"]:
            if asked["query"].startswith("count("):
                found = [f'{{"metric":{{}},"value":[0,"{CONTAINERS}"]}}']
            elif is_range:
                step = int(float(asked["step"]))
                times = range(int(float(asked["start"])), int(float(asked["end"])) + 1, step)
                rounds = [(f"[{at}", at // step % VARIANTS) for at in times]
                for labels, tails in zip(self.labels, self.tails, strict=True):
                    points = ",".join([begin + tails[number] for begin, number in rounds])
                    found.append(f'{{"metric":{labels},"values":[{points}]}}')
            else:
                found = [f'{{"metric":{labels},"value":[0,"1"]}}' for labels in self.labels]
        data = f'{{"resultType":"{"matrix" if is_range else "vector"}","result":[{",".join(found)}]}}'
        body = f'{{"status":"success","data":{data}}}'.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def run(arguments: list[str]) -> tuple[float, float, float]:
    """Runs the command; returns wall seconds, CPU seconds and the most memory in MiB."""
    command = [sys.executable, "-m", "cotenant.cli.main", "recommend", "-o", "json", *arguments]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ)
    assert process.stdout is not None
    document = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status or not any(each["advised"] for each in document["advice"]):
        sys.exit(f"it failed: {document}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure(interval: int) -> bool:
    """Prints both; whether both kept the promise."""
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "samples.csv")
        rows = write_file(path, interval)
        wall, cpu, memory = run(["--from-csv", str(path), "--min-history", "1d"])
        what = f"CSV of {rows:,} rows, one every {interval} s"
        found.append(
            Figure(what, f"{wall:.1f} s, {cpu:.1f} s of CPU, {memory:.0f} MiB", f"{PROMISED_SECONDS} s")
        )
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    asked, own, most = run(["--prometheus", url, "--since", f"{DAYS}d", "--min-starts", "0"])
    server.shutdown()
    what = "Prometheus, with the time of the server that plays it"
    found.append(Figure(what, f"{asked:.1f} s, {own:.1f} s of CPU, {most:.0f} MiB", f"{PROMISED_SECONDS} s"))
    for each in found:
        print(f"{each.what}: {each.measured} (promised: under {each.promised})")
    record("bench.recommend_scale", found)
    return wall < PROMISED_SECONDS and asked < PROMISED_SECONDS


if __name__ == "__main__":
    sys.exit(0 if measure(300) else 1)
