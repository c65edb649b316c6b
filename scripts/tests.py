"""Runs the tests for make.

    python scripts/tests.py quick PYTEST ARGUMENTS ...
    python scripts/tests.py cluster FILES ON AN API SERVER ...

Each kind runs in two halves side by side, since tests wait more than they compute: one is told as it happens,
the other after it. Of those on a real Kubernetes these are the control plane's and those with a real kubelet,
in two testbeds. What fails is run once more by itself, and both are shown: on a busy machine real processes
are late at times, a fault fails again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

FAILED = 1
"""pytest's exit code when tests failed; others mean that something else is wrong."""
OF_A_CLUSTER = ("tests/core", "tests/dialects", "tests/image", "tests/kube")


def run(name: str, arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", *arguments, "-o", f"cache_dir=.pytest_cache/{name}"]
    code = subprocess.run(command, check=False).returncode
    if code != FAILED:
        return code
    print(f"{name}: some failed; these are run once more by themselves", flush=True)
    return subprocess.run([*command, "--last-failed"], check=False).returncode


def beside(others: Sequence[str], work: Callable[[], int], title: str) -> int:
    """The work, told as it happens; the others meanwhile, by this program called anew, told after it."""
    with tempfile.TemporaryFile() as said:
        other = subprocess.Popen([sys.executable, __file__, *others], stdout=said, stderr=subprocess.STDOUT)
        try:
            code = work()
            print(title, flush=True)
            code = max(code, other.wait())
        finally:
            other.terminate()
            other.wait()
        said.seek(0)
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    return code


def quick(arguments: Sequence[str]) -> int:
    """Those about a cluster beside the others: each half leaves a core idle half of the time."""
    paths = [each for each in arguments if not each.startswith("-")]
    options = [each for each in arguments if each.startswith("-")]
    machine = [*paths, *options, *(f"--ignore={each}" for each in OF_A_CLUSTER)]
    return beside(
        ["one", "quick-cluster", *OF_A_CLUSTER, *options],
        lambda: run("quick-machine", machine),
        "about a cluster, without one, meanwhile:",
    )


def cluster(on_api_server: Sequence[str]) -> int:
    return beside(
        ["kubelet", *on_api_server],
        lambda: run("control-plane", ["tests/cluster", "--part=control-plane"]),
        "on an API server alone, and with a real kubelet, meanwhile:",
    )


def kubelet(on_api_server: Sequence[str]) -> int:
    return max(run("api-server", on_api_server), run("kubelet", ["tests/cluster", "--part=kubelet"]))


def main(what: str, arguments: Sequence[str]) -> int:
    if what == "one":
        return run(arguments[0], arguments[1:])
    return {"quick": quick, "cluster": cluster, "kubelet": kubelet}[what](arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
