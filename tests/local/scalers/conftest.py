"""Workloads of `cotenant up` on simulated cards, and a queue that a test fills."""

import contextlib
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from cotenant.local.processes import stat
from cotenant.local.scalers.folder import ScalerFolder

WORKER = Path(__file__).with_name("worker.py")


class Queue:
    """A queue whose figures are in a JSON document, as a message broker's statistics are."""

    def __init__(self):
        self.figures = {"depth": 0, "working": 0}
        queue = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(queue.figures).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def spec(self):
        return {"http": {"url": f"http://127.0.0.1:{self.port}/", "path": "depth", "inFlight": "working"}}

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def queue():
    made = Queue()
    yield made
    with contextlib.suppress(OSError):
        made.close()


class Workloads:
    """A file of workloads, and `cotenant up` on it."""

    def __init__(self, machine, folder, queue):
        self.machine, self.queue = machine, queue
        self.file = folder / "workloads.yaml"
        self.folder = ScalerFolder(machine.home)

    def workload(self, *command, **fields):
        return {
            "command": list(command) or [sys.executable, str(WORKER)],
            "gpuMemory": "4Gi",
            "replicas": {"min": 0, "max": 3},
            "backlog": {"queue": self.queue.spec},
            "terminationGracePeriod": "5s",
            **fields,
        }

    def write(self, **workloads):
        names = {name.replace("_", "-"): spec for name, spec in workloads.items()}
        self.file.write_text(yaml.safe_dump({"poll": "200ms", "workloads": names}))

    def up(self, **workloads):
        """`cotenant up -d`; with workloads it writes the file first."""
        if workloads:
            self.write(**workloads)
        done = self.machine("up", "-d", self.file)
        assert done.returncode == 0, done.stderr
        return done

    def pid(self):
        return self.folder.scaled_by()

    def kill(self):
        """kill -9 of the process that scales."""
        os.kill(self.pid(), signal.SIGKILL)

    def scaler(self, name="work"):
        return next(each for each in self.machine.listing("scalers")["scalers"] if each["name"] == name)

    def replicas(self, name="work"):
        """The jobs of a workload that run or wait."""
        return [row for row in self.machine.rows() if row["workload"] == name]

    def pids(self, name="work"):
        """The processes of its commands, once they were started."""
        return {row["name"]: row["process"]["pid"] for row in self.replicas(name) if row["started"]}

    def log(self):
        return (self.folder.path / "up.log").read_text()


@pytest.fixture
def workloads(machine, tmp_path, queue):
    made = Workloads(machine, tmp_path, queue)
    yield made
    while (pid := made.pid()) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for row in made.machine.rows():  # runners that have not started their command, and the commands
        with contextlib.suppress(ProcessLookupError):
            os.kill(row["process"]["pid"], signal.SIGKILL)


def lives(pid):
    found = stat(pid)
    return found is not None and not found.ended
