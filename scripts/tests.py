"""Runs the tests for make.

    python scripts/tests.py quick PYTEST ARGUMENTS ...
    python scripts/tests.py cluster FILES ON AN API SERVER ...

Those on a real Kubernetes run in two testbeds side by side, since each waits more than it computes: the
control plane's, told as they happen, and those with a real kubelet, told after them. What fails is run once
more by itself, and both are shown: on a busy machine real processes are late at times, a fault fails again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO

FAILED = 1
"""pytest's exit code when tests failed; others mean that something else is wrong."""


def run(name: str, arguments: Sequence[str], output: IO[bytes] | None = None) -> int:
    command = [sys.executable, "-m", "pytest", *arguments, "-o", f"cache_dir=.pytest_cache/{name}"]
    code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if code != FAILED:
        return code
    print(f"{name}: some failed; these are run once more by themselves", flush=True)
    return subprocess.run(
        [*command, "--last-failed"], stdout=output, stderr=subprocess.STDOUT, check=False
    ).returncode


def cluster(on_api_server: Sequence[str]) -> int:
    with tempfile.TemporaryFile() as said:
        kubelet = subprocess.Popen(
            [sys.executable, __file__, "kubelet"], stdout=said, stderr=subprocess.STDOUT
        )
        try:
            codes = [
                run("api-server", on_api_server),
                run("control-plane", ["tests/cluster", "--part=control-plane"]),
            ]
            print("with a real kubelet, meanwhile:", flush=True)
            codes.append(kubelet.wait())
        finally:
            kubelet.terminate()
            kubelet.wait()
        said.seek(0)
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    return max(codes)


def main(what: str, arguments: Sequence[str]) -> int:
    if what == "cluster":
        return cluster(arguments)
    if what == "kubelet":
        return run("kubelet", ["tests/cluster", "--part=kubelet"])
    return run("quick", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
