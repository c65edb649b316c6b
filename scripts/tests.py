"""Runs the tests for make, and counts them, those among them that fail at first and pass when run again.

    python scripts/tests.py quick      what needs no Kubernetes, with the coverage of what is about a cluster
    python scripts/tests.py cluster    on a real Kubernetes
    python scripts/tests.py keda       with the real KEDA; not part of the others: it takes long to build
    python scripts/tests.py total      the counts over the last `quick` and `cluster`

Tests wait more than they compute, so each kind runs in lanes side by side: processes that take the next
file of tests which no other lane has taken (tests/claims.py). The output of the first is shown as it happens,
that of the others after it. Which test is in which set is said by markers (pyproject.toml).

What fails is run once more by itself: on a busy machine real processes are late at times, a fault fails
again. Such a test is FLAKY; more than two of them fail the run.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

FAILED = 1
"""pytest's exit code when tests failed; others mean that something else is wrong."""
TOLERATED = 2
"""The most FLAKY tests that do not fail a run."""
CACHE = Path(".pytest_cache")
FIRST, AGAIN = "first", "again"
"""Endings of pytest's results of a set: of all its tests, of those that were run once more."""

KUBERNETES = "(api_server or control_plane)"
SETS: Mapping[str, tuple[str, ...]] = {
    "quick": ("tests", "-m", f"not {KUBERNETES}"),
    "control-plane": ("tests/cluster", "-m", "control_plane and not kubelet and not keda"),
    "api-server": ("tests/kube", "-m", "api_server"),
    "kubelet": ("tests/cluster", "-m", "kubelet"),
    "keda": ("tests/cluster", "-m", "keda"),
}
"""Name to pytest's arguments. Tests in tests/cluster run in a testbed, so they are asked for alone."""
QUICK = (("quick",),) * 3
"""The sets that each lane runs, in order. Three keep two cores busy; those of a cluster wait more, and are
four.
"""
CLUSTER = (
    ("kubelet", "control-plane"),
    ("control-plane", "kubelet"),
    ("api-server", "control-plane"),
    ("control-plane",),
)
"""No more than two kubelets at once: each starts forty containers in one of its tests. A lane that is done
with its own set helps with the others.
"""

COVERED = "quick"
"""Measured in process only. SlipCover costs 2 % of the CPU time; coverage.py 118 % with Python 3.11 (34 s
became 74 s).
"""
OMITTED = ("cli", "demo", "hardware", "local")
"""Tested as processes of their own, which are not measured."""
UNKNOWN_TO_PYTEST = "ignore:Module already imported so cannot be rewritten; slipcover"

Pytest = Callable[[str, Sequence[str]], int]
"""Runs pytest with the cache of a set and further arguments, and returns its exit code."""


def run(name: str, pytest: Pytest, lane: int = 0, cache: Path = CACHE) -> int:
    """Runs what is left of one set, and what failed once more by itself; records which tests were FLAKY."""
    record_name = f"{name}.{lane}"
    results = cache / "results" / record_name
    # Which part of all tests a lane has run is not known: it collects as it goes.
    style = ["-o", "console_output_style=classic"]
    first = [f"--junit-xml={results}.{FIRST}", f"--claims={cache / 'claims'}", *style]
    code = pytest(record_name, [*SETS[name], "--cache-clear", *first])
    failed = last_failed(cache / record_name)
    again = frozenset[str]()
    if code == FAILED:
        print(f"{name}: some failed; these are run once more by themselves", flush=True)
        code = pytest(record_name, [*SETS[name], "--last-failed", f"--junit-xml={results}.{AGAIN}"])
        again = last_failed(cache / record_name) if code in (0, FAILED) else failed
    record(record_name, failed - again, cache)
    return code


def last_failed(cache: Path) -> frozenset[str]:
    """Reads from pytest's cache which tests failed when they were last run."""
    try:
        return frozenset(json.loads((cache / "v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return frozenset()


def record(name: str, flaky: frozenset[str], cache: Path = CACHE) -> None:
    folder = cache / "flaky"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(f"{test}\n" for test in sorted(flaky)))


def forget(names: Collection[str], cache: Path = CACHE) -> None:
    """Deletes what an earlier run left of these sets, so that nothing of it is counted or taken for done."""
    recorded = [file for folder in ("flaky", "results") for file in (cache / folder).glob("*")]
    for file in [*recorded, *cache.glob("coverage.*")]:
        if set_of(file) in names or file.stem == "coverage":
            file.unlink()
    shutil.rmtree(cache / "claims", ignore_errors=True)


def set_of(file: Path) -> str:
    """Returns the set of which a file records something."""
    return file.name.partition(".")[0]


def report_flaky(names: Collection[str], cache: Path = CACHE) -> int:
    """Prints the FLAKY tests of these sets and their number; FAILED if there are too many."""
    recorded = [file for file in (cache / "flaky").glob("*") if set_of(file) in names]
    tests = sorted(test for file in recorded for test in file.read_text().splitlines())
    for test in tests:
        print(f"FLAKY: {test}")
    too_many = len(tests) > TOLERATED
    print(
        f"FLAKY: {len(tests)}" + (f", more than {TOLERATED}: the run fails" if too_many else ""), flush=True
    )
    return FAILED if too_many else 0


def report_total(names: Collection[str], seconds: float, cache: Path = CACHE) -> None:
    """Prints how many tests of these sets passed, failed and did not run, as pytest does of one run."""
    total = Counter[str]()
    for file in (cache / "results").glob("*"):
        if set_of(file) in names:
            total += count(file)
    said = ", ".join(f"{total[what]} {what}" for what in ("failed", "passed", "skipped") if total[what])
    print(f"{said or 'no tests ran'} in {seconds:.2f}s ({timedelta(seconds=round(seconds))})", flush=True)


def count(results: Path) -> Counter[str]:
    """Counts what pytest's record of a run says; what failed and was run once more is counted there."""
    suite = ET.parse(results).getroot().find("testsuite")
    if suite is None:
        return Counter()
    tests, failures, errors, skipped = (
        int(suite.get(what, 0)) for what in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    is_run_again = results.with_suffix(f".{AGAIN}").exists() and not results.match(f"*.{AGAIN}")
    return Counter(passed=tests - failed - skipped, skipped=skipped, failed=0 if is_run_again else failed)


def worst(*codes: int) -> int:
    """Returns the first exit code that is not 0; that of a process killed by a signal is negative."""
    return next((code for code in codes if code != 0), 0)


def start_pytest(name: str, arguments: Sequence[str]) -> int:
    command = ["pytest", *arguments, "-o", f"cache_dir={CACHE / name}"]
    if name.startswith(COVERED) and "--last-failed" not in arguments:
        omitted = ",".join(f"src/cotenant/{folder}/*" for folder in OMITTED)
        measure = ["slipcover", "--source=src/cotenant", f"--omit={omitted}", "--json"]
        command = [*measure, f"--out={CACHE}/coverage.{name}", "-m", *command, "-W", UNKNOWN_TO_PYTEST]
    return subprocess.run([sys.executable, "-m", *command], check=False).returncode


def report_coverage() -> None:
    """Prints the lines that were run, in per cent, and the files with the lowest share."""
    whole = CACHE / "coverage"
    measured = map(str, CACHE.glob(f"coverage.{COVERED}.*"))
    command = [sys.executable, "-m", "slipcover", "--json", f"--out={whole}", "--merge", *measured]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        print(f"coverage: not known: {done.stderr.decode().strip()}")
        return
    report = json.loads(whole.read_text())
    total = report["summary"]["percent_covered"]
    print(f"coverage: {total:.1f} % of the lines about a cluster, by tests without one; least:")
    for path, percent in least_covered(report):
        print(f"  {percent:5.1f} %  {path}")


def least_covered(report: Mapping[str, Any], count: int = 10) -> list[tuple[str, float]]:
    """Returns the files of a report with the lowest share of lines that were run."""
    shares = ((path, each["summary"]["percent_covered"]) for path, each in report["files"].items())
    return sorted(shares, key=lambda share: (share[1], share[0]))[:count]


def run_lanes(lanes: Sequence[Sequence[str]]) -> int:
    """Runs all lanes at once, each a process; prints the output of the first, then that of the others."""
    forget({name for names in lanes for name in names})
    with contextlib.ExitStack() as stack:
        others = []
        for lane, names in enumerate(lanes[1:], start=1):
            output = stack.enter_context(tempfile.TemporaryFile())
            command = [sys.executable, __file__, "lane", str(lane), *names]
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            others.append((names, process, output))
        code = run_lane(0, *lanes[0])
        for names, process, output in others:
            print(f"beside it, {', '.join(names)}:", flush=True)
            code = worst(code, process.wait())
            output.seek(0)
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
    return code


def run_lane(lane: int, *names: str) -> int:
    return worst(*[run(name, start_pytest, lane) for name in names])


KINDS: Mapping[str, Sequence[Sequence[str]]] = {"quick": QUICK, "cluster": CLUSTER, "keda": (("keda",),)}
"""What can be asked for, and its lanes."""


def run_kind(kind: str) -> int:
    lanes, begin = KINDS[kind], time.monotonic()
    code = run_lanes(lanes)
    if kind == "quick":
        report_coverage()
    names = {name for lane in lanes for name in lane}
    code = worst(code, report_flaky(names))
    seconds = time.monotonic() - begin
    (CACHE / f"seconds.{kind}").write_text(str(seconds))
    report_total(names, seconds)
    return code


def total() -> int:
    kinds = ("quick", "cluster")
    names = {name for kind in kinds for lane in KINDS[kind] for name in lane}
    code = report_flaky(names)
    report_total(names, sum(float((CACHE / f"seconds.{kind}").read_text()) for kind in kinds))
    return code


def main(what: str, *names: str) -> int:
    if what == "lane":
        return run_lane(int(names[0]), *names[1:])
    return total() if what == "total" else run_kind(what)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
