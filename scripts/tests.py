"""Runs the tests for make, and counts those that fail at first and pass when run again.

    python scripts/tests.py quick      what needs no Kubernetes, with the coverage of the half about a cluster
    python scripts/tests.py cluster    on a real Kubernetes
    python scripts/tests.py flaky      the count over the last `quick` and `cluster`

Each kind runs in two halves side by side, since tests wait more than they compute: the output of one is shown
as it happens, that of the other after it. Which test is in which half is said by markers (pyproject.toml).

What fails is run once more by itself: on a busy machine real processes are late at times, a fault fails
again. Such a test is FLAKY; more than two of them fail the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

FAILED = 1
"""pytest's exit code when tests failed; others mean that something else is wrong."""
TOLERATED = 2
"""The most FLAKY tests that do not fail a run."""
CACHE = Path(".pytest_cache")

KUBERNETES = "(api_server or control_plane)"
HALVES: Mapping[str, tuple[str, ...]] = {
    "quick-machine": ("tests", "-m", f"machine and not {KUBERNETES}"),
    "quick-cluster": ("tests", "-m", f"not machine and not {KUBERNETES}"),
    "control-plane": ("tests/cluster", "-m", "control_plane and not kubelet"),
    "api-server": ("tests/kube", "-m", "api_server"),
    "kubelet": ("tests/cluster", "-m", "kubelet"),
}
"""Name to pytest's arguments. Tests in tests/cluster run in a testbed, so they are asked for alone."""
QUICK = ("quick-machine", "quick-cluster")
CLUSTER = ("control-plane", "api-server", "kubelet")

COVERED = "quick-cluster"
"""Measured in process only, and only this half: with Python 3.11 the tracer costs tests that compute 80 %
more CPU (32 s became 58 s), and those of one machine run most of what they test in other processes.
"""
COVERAGE = CACHE / "coverage"

Pytest = Callable[[str, Sequence[str]], int]
"""Runs pytest with the cache of a half and further arguments, and returns its exit code."""


def run(name: str, pytest: Pytest, cache: Path = CACHE) -> int:
    """Runs one half, and what failed once more by itself; records which tests were FLAKY."""
    code = pytest(name, [*HALVES[name], "--cache-clear"])
    failed = last_failed(cache / name)
    again = frozenset[str]()
    if code == FAILED:
        print(f"{name}: some failed; these are run once more by themselves", flush=True)
        code = pytest(name, [*HALVES[name], "--last-failed"])
        again = last_failed(cache / name) if code in (0, FAILED) else failed
    record(name, failed - again, cache)
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


def forget(names: Sequence[str], cache: Path = CACHE) -> None:
    """Deletes the records of an earlier run, so that a half that does not run counts nothing."""
    for name in names:
        (cache / "flaky" / name).unlink(missing_ok=True)


def report_flaky(names: Sequence[str], cache: Path = CACHE) -> int:
    """Prints the FLAKY tests of these halves and their number; FAILED if there are too many."""
    recorded = [cache / "flaky" / name for name in names]
    tests = sorted(test for file in recorded if file.exists() for test in file.read_text().splitlines())
    for test in tests:
        print(f"FLAKY: {test}")
    too_many = len(tests) > TOLERATED
    print(
        f"FLAKY: {len(tests)}" + (f", more than {TOLERATED}: the run fails" if too_many else ""), flush=True
    )
    return FAILED if too_many else 0


def worst(*codes: int) -> int:
    """Returns the first exit code that is not 0; that of a process killed by a signal is negative."""
    return next((code for code in codes if code != 0), 0)


def start_pytest(name: str, arguments: Sequence[str]) -> int:
    command = ["pytest", *arguments, "-o", f"cache_dir={CACHE / name}"]
    if name == COVERED and "--last-failed" not in arguments:
        command = ["coverage", "run", f"--data-file={COVERAGE}", "-m", *command]
    return subprocess.run([sys.executable, "-m", *command], check=False).returncode


def report_coverage() -> None:
    """Prints the lines that the covered half ran, in per cent, and the files with the lowest share."""
    command = [sys.executable, "-m", "coverage", "json", "-q", f"--data-file={COVERAGE}", "-o", "-"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        print(f"coverage: not known: {done.stdout.decode().strip()}")
        return
    report = json.loads(done.stdout)
    total = report["totals"]["percent_covered"]
    print(f"coverage: {total:.1f} % of the lines about a cluster, by tests without one; least:")
    for path, percent in least_covered(report):
        print(f"  {percent:5.1f} %  {path}")


def least_covered(report: Mapping[str, Any], count: int = 10) -> list[tuple[str, float]]:
    """Returns the files of a `coverage json` report with the lowest share of lines that were run."""
    shares = ((path, each["summary"]["percent_covered"]) for path, each in report["files"].items())
    return sorted(shares, key=lambda share: (share[1], share[0]))[:count]


def beside(others: Sequence[str], work: Callable[[], int], title: str) -> int:
    """Does the work while this program runs with other arguments; prints the output of that afterwards."""
    with tempfile.TemporaryFile() as output:
        other = subprocess.Popen([sys.executable, __file__, *others], stdout=output, stderr=subprocess.STDOUT)
        try:
            code = work()
            print(title, flush=True)
            code = worst(code, other.wait())
        finally:
            other.terminate()
            other.wait()
        output.seek(0)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return code


def quick() -> int:
    """Runs the cluster's tests beside those of one machine: each leaves a core idle half of the time."""
    forget([*QUICK, *CLUSTER])
    code = beside(
        ["halves", "quick-cluster"],
        lambda: run("quick-machine", start_pytest),
        "about a cluster, without one, meanwhile:",
    )
    report_coverage()
    return worst(code, report_flaky(QUICK))


def cluster() -> int:
    forget(CLUSTER)
    code = beside(
        ["halves", "api-server", "kubelet"],
        lambda: run("control-plane", start_pytest),
        "on an API server alone, and with a real kubelet, meanwhile:",
    )
    return worst(code, report_flaky(CLUSTER))


def main(what: str, *names: str) -> int:
    if what == "halves":
        return worst(*[run(name, start_pytest) for name in names])
    if what == "flaky":
        return report_flaky([*QUICK, *CLUSTER])
    return {"quick": quick, "cluster": cluster}[what]()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
