"""The tests on a real Kubernetes, in two testbeds side by side: each waits more than it computes.

    python scripts/cluster_tests.py FILES ON AN API SERVER ...

First in the output, and told as it happens, are those of the control plane; then those with a real kubelet.
Each testbed has namespaces of its own, so they do not meet.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

PYTEST = [sys.executable, "-m", "pytest"]


def main(on_api_server: list[str]) -> int:
    with tempfile.TemporaryFile() as said:
        kubelet = subprocess.Popen(
            [*PYTEST, "tests/cluster", "--part=kubelet"], stdout=said, stderr=subprocess.STDOUT
        )
        try:
            codes = [
                subprocess.run([*PYTEST, *files], check=False).returncode
                for files in (on_api_server, ["tests/cluster", "--part=control-plane"])
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
