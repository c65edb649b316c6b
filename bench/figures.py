"""Keeps the measured figures in bench/figures.json, and writes them as the page docs/benchmarks.md.

A bench records its figures only if `make bench` runs it. One bench may be measured alone: the figures of the
others stay. Each bench names the machine it ran on, since figures of two machines cannot be compared.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
FILE = HERE / "figures.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"
RECORD = "COTENANT_BENCH_RECORD"
"""Names the file to which a bench appends its figures; unset, nothing is recorded."""
MEASURED = "measured"


class Figure(NamedTuple):
    what: str
    measured: str
    promised: str = ""
    column: str = MEASURED
    """Figures of the same thing under several conditions are columns of one row."""


class Bench(NamedTuple):
    title: str
    about: str


BENCHES = {
    "bench.shim": Bench(
        "The shim in a program",
        "The same driver calls, direct and through the shim, in turns. They go to the stand-in driver with a "
        "launch time of zero, so what remains is the cost of the shim itself.",
    ),
    "bench.run": Bench(
        "cotenant run",
        "Wall time of `cotenant run -- true`, in turns with plain `true`, on 8 simulated GPUs.",
    ),
    "bench.local": Bench(
        "Many commands on one machine",
        "A watcher reads the account of the stand-in driver all the time. It shares no code with the shim or "
        "the ledger, and must never see a GPU over its memory, or memory that is left at the end.",
    ),
    "bench.placement": Bench(
        "How full a cluster gets",
        "Allocated GPU in percent of the cluster, on the production trace `openb` with the protocol of FGD "
        '("Beware of Fragmentation", USENIX ATC \'23), at 1.3 times the load that fits; and the part of the '
        "GPU asked for that is refused where pods come and go at the load that fits. `frag` goes through the "
        "cluster's own ledger and policy, BestFit and FGD are replicas. The last column is what that paper "
        "reports: a comparison, not a check.",
    ),
    "bench.placement_cluster": Bench(
        "The same through a real kube-scheduler",
        "Allocated GPU of 100 hollow nodes that are sampled from the trace `openb`, with its pods at "
        "1.3 times the load that fits, placed one after another by the real kube-scheduler and a server; "
        "beside it what the simulator says for the same samples. The two may differ by half a point.",
    ),
    "bench.simulated_placement": Bench(
        "Simulating placement on a dump of 1,000 nodes",
        "The whole of `cotenant simulate placement` with a plot: wall time, CPU time and the most memory of "
        "its process. The dump has 7,000 GPUs of 16 to 80 GB and 8,121 pods: "
        "[simulate-placement.md](simulate-placement.md).",
    ),
    "bench.scaling": Bench(
        "Scaling policies on a real trace",
        "Late % / turns an hour / replica-hours of each policy on the conversation trace of Azure's LLM "
        "inference dataset (CC-BY), request by request: [simulate-scaling.md](simulate-scaling.md). "
        "For 0.1 s the trace is laid over itself 8 times. Nothing is timed.",
    ),
    "bench.loads": Bench(
        "Scaling policies on loads that nothing was chosen for",
        "Late % / turns an hour / replica-hours as a multiple of the bound: means over cold starts of 10, 45 "
        "and 180 s, with a target of 5 s. `busy` is the number of replicas that the work keeps busy. Where a "
        "spike is shorter than a cold start no policy helps. Nothing is timed.",
    ),
    "bench.recommend": Bench(
        "Advice on memory traces that it has not seen",
        "Misses % / slack % of each strategy, means over traces of generated families "
        "(`bench/memory_traces.py`). A trace is cut in two: the first part makes the advice, a miss is a "
        "container that passes it in the second. `peak` is the default, `max` the own peak and 15 %. Slack "
        "is the mean over containers, `of sums` that of all advice over all later peaks. `told` is the rate "
        "of misses that the back-test reported, `kept` how many traces had at most 5 % misses at less than "
        "40 % slack, by the mean and by the sums. Families with a star were written after the rule and the "
        "way it chooses headroom were fixed, and no seed of these was looked at before. Nothing is timed.",
    ),
    "bench.recommend_scale": Bench(
        "Advice from 30 days of 500 containers",
        "The whole command, with all that it reads: wall time, CPU time and the most memory of one process.",
    ),
    "bench.decide": Bench(
        "A scaling decision",
        "CPU time of `decide` alone, without a queue or the API. Each scaler has a load of its own, and "
        "was followed for 25 minutes, so its memory is full.",
    ),
    "bench.defrag": Bench(
        "Moving pods to open a GPU",
        "`cotenant plan defrag` on simulated clusters without an unused GPU: CPU time of the search, without "
        "reading the cluster. Plans for small clusters are carried out on a ledger.",
    ),
    "bench.scan": Bench(
        "One question to the cluster's ledger",
        "CPU time without HTTP, JSON or an API server: median and 99th percentile at 5,000 nodes of 8 GPUs.",
    ),
    "bench.mps": Bench(
        "An MPS control daemon that is killed",
        "The agent supervises NVIDIA's own control daemon on simulated GPUs. It is killed with -9 "
        "five times, and the time is counted until a new one answers with the settings of the old.",
    ),
    "bench.signals": Bench(
        "Reading queues",
        "A round reads all scalers' queues once, from a Redis on this machine that is not restarted between: "
        "two commands each. The median of 20 rounds.",
    ),
    "bench.agent": Bench(
        "The agent of a full node",
        "8 GPUs with 48 containers each: a pod, a slot and a process that holds memory through the shim for "
        "every one of them, on a real API server. At rest nothing happens but scrapes. What the stand-in "
        "driver does inside the agent, and its 3 MiB, are included; the real one does it in the kernel.",
    ),
    "bench.scalers": Bench(
        "A thousand GpuScalers",
        "One server on a real control plane polls one Redis every 2 s for all of them. Each has a Deployment "
        "whose pods have GPUs on hollow nodes. What the server writes is counted in the API server's audit "
        "log, without its Lease. The time of a round is the server's own metric.",
    ),
    "bench.extender": Bench(
        "The scheduler extender",
        "On a real control plane, with hollow nodes of 8 GPUs of 80 GiB and 4 running pods each. All node "
        "names are in the body of a call. Beside it an extender that does nothing: they take turns in a run, "
        "eleven times each with 100 nodes and five with more; the two of a turn are compared, and the median "
        "counts. With 100 nodes both cores are busy all the time, so every millisecond of CPU counts; with "
        "more nodes kube-scheduler's own work does, and it has less of that since it is named one node.",
    ),
}


def machine() -> str:
    """Describes where the figures were measured, without a name or a date."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{os.cpu_count()} cores, {pages / 2**30:.0f} GiB, {platform.machine()}, Python {python}, no GPU"


def record(bench: str, figures: Iterable[Figure], beside: str = "") -> None:
    """Appends the figures of one bench. `beside` adds to the machine's description."""
    if path := os.environ.get(RECORD):
        where = ", ".join(each for each in (machine(), beside) if each)
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"bench": bench, "machine": where, **each._asdict()}) + "\n" for each in figures
            )


def keep(recorded: Path) -> None:
    """Replaces the figures of those benches that recorded any, and writes the page."""
    known = load()
    new: dict[str, Any] = {}
    for line in recorded.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        entry = new.setdefault(row.pop("bench"), {"machine": row["machine"], "figures": []})
        del row["machine"]
        entry["figures"].append(row)
    known.update(new)
    ordered = {bench: known[bench] for bench in BENCHES if bench in known}
    FILE.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


def load() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def page() -> str:
    """Returns the text of docs/benchmarks.md."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield from (
        "# Benchmarks",
        "",
        "This page is generated from `bench/figures.json`: change the benches in `bench/`, not this file.",
        "",
        "    make bench                              measure everything and write this page",
        "    .venv/bin/python -m bench bench.run     measure one again and keep the other figures",
        "    .venv/bin/python -m bench.run           measure one and only print it",
        "",
        "No real GPU was at hand: programs call a stand-in driver. A bench exits with 1 if a figure is not",
        "within what is promised. The extender's takes longest: it starts a control plane for each size.",
    )
    for bench, entry in load().items():
        title, about = BENCHES[bench]
        yield from (
            "",
            f"## {title}",
            f"`python -m {bench}`. {about}",
            "",
            f"Measured on {entry['machine']}.",
            "",
        )
        yield from _table([Figure(**each) for each in entry["figures"]])
    missing = [bench for bench in BENCHES if bench not in load()]
    if missing:
        yield from ("", "## Not measured yet", ", ".join(f"`python -m {bench}`" for bench in missing) + ".")


def _table(figures: list[Figure]) -> Iterator[str]:
    columns = list(dict.fromkeys(each.column for each in figures))
    promised = {each.what: each.promised for each in figures if each.promised}
    yield f"| what | {' | '.join(columns)} | promised |"
    yield "|---" * (len(columns) + 2) + "|"
    cells = {(each.what, each.column): each.measured for each in figures}
    for what in dict.fromkeys(each.what for each in figures):
        row = [cells.get((what, column), "") for column in columns]
        yield f"| {what} | {' | '.join(row)} | {promised.get(what, '')} |"
