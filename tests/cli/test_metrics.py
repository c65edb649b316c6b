"""`cotenant metrics`: the names of a cluster's nodes for this machine's commands, on loopback, once, or in a file."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cotenant.cli.metrics import Address, address
from cotenant.core.errors import BadInput
from cotenant.demo import worker
from cotenant.local import home

COTENANT = [sys.executable, "-m", "cotenant.cli.main"]
GIB = 2**30


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    yield {**os.environ, "COTENANT_HOME": str(folder), "COTENANT_SIMULATE": "2x16GiB"}
    subprocess.run(["rm", "-rf", home.prepare(folder).runtime], check=False)


@pytest.fixture(scope="module")
def jobs(environ):
    """Two that hold 2 GiB each, and one that waits."""
    started = []
    for name, size in (("train", "12Gi"), ("serve", "12Gi"), ("later", "8Gi")):
        command = [
            *COTENANT,
            "run",
            "--gpu-memory",
            size,
            "--name",
            name,
            "--",
            sys.executable,
            worker.__file__,
            "2Gi",
        ]
        process = subprocess.Popen(
            command,
            env=environ,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        assert (process.stderr if name == "later" else process.stdout).readline()
    yield started
    for process in started:
        process.terminate()
        process.communicate()


def metrics(environ, *options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COTENANT, "metrics", *options], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def read(text: str) -> dict[str, dict[str, float]]:
    """Values by name and by pod or GPU."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            of = sample.labels.get("pod") or sample.labels.get("index") or sample.labels.get("what", "")
            found.setdefault(sample.name, {})[of] = sample.value
    return found


def check(told: dict[str, dict[str, float]]) -> None:
    used = told["cotenant_container_memory_used_bytes"]
    assert set(used) == {"train", "serve"}
    assert told["cotenant_container_memory_limit_bytes"] == {"train": 12 * GIB, "serve": 12 * GIB}
    outside = told["cotenant_gpu_memory_outside_bytes"]
    assert sum(used.values()) + sum(outside.values()) == sum(told["cotenant_gpu_memory_used_bytes"].values())
    assert told["cotenant_container_memory_over_bytes"] == {"train": 0, "serve": 0}
    assert told["cotenant_scheduler_pending_pods"] == {"": 1}
    assert (
        told["cotenant_scheduler_longest_wait_seconds"][""]
        == told["cotenant_scheduler_waiting_pod_seconds"]["later"]
    )


def test_it_prints_once_what_runs_and_who_waits(environ, jobs):
    done = metrics(environ, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    check(read(done.stdout))
    (info,) = [
        line
        for line in done.stdout.splitlines()
        if line.startswith("cotenant_container_info{") and "train" in line
    ]
    assert 'container="job"' in info
    assert 'workload="worker",workload_kind="Program"' in info
    versions = {
        line.split('version="')[1][:10]
        for line in done.stdout.splitlines()
        if "cotenant_container_info{" in line
    }
    assert len(versions) == 1, "both run the same command line"
    assert 'actual="shim",asked="shim"' in done.stdout


def test_it_writes_a_file_in_one_step_that_others_can_read(environ, jobs, tmp_path):
    file = tmp_path / "cotenant.prom"
    file.write_text("old")
    before = file.stat().st_ino
    assert metrics(environ, "--write", file).returncode == 0
    check(read(file.read_text()))
    assert file.stat().st_ino != before, "it is another file under the same name"
    assert file.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["cotenant.prom"]
    refused = metrics(environ, "--write", "/nowhere/cotenant.prom")
    assert refused.returncode == 1
    assert "--write: /nowhere/cotenant.prom cannot be written: No such file or directory" in refused.stderr


@pytest.fixture
def served(environ):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [*COTENANT, "metrics", "--listen", f"127.0.0.1:{port}"],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline() == f"serving http://127.0.0.1:{port}/metrics\n"
    yield port, process
    process.kill()
    process.communicate()


def fetch(port: int, path: str = "/metrics", verb: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(verb, path)
    answer = connection.getresponse()
    found = answer.status, answer.headers["Content-Type"], answer.read().decode()
    connection.close()
    return found


def test_it_serves_several_at_once_and_silent_connections_block_nobody(environ, jobs, served):
    port, process = served
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(fetch, [port] * 8))
    assert {(status, kind) for status, kind, _ in answers} == {
        (200, "text/plain; version=0.0.4; charset=utf-8")
    }
    for _, _, text in answers:
        check(read(text))
    assert fetch(port, "/healthz")[:1] == (200,)
    assert fetch(port, "/metrics?name=x")[0] == 200
    assert fetch(port, "/etc/passwd")[0] == 404
    assert fetch(port, verb="HEAD") == (200, answers[0][1], "")
    assert fetch(port, "/etc/passwd", "HEAD")[::2] == (404, "")
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", data=b"x", timeout=10)
    for each in silent:
        each.close()
    taken = metrics(environ, "--listen", f"127.0.0.1:{port}")
    assert f"--listen: cannot listen on 127.0.0.1, port {port}: Address already in use" in taken.stderr
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 128 + signal.SIGTERM
    assert process.stderr.read() == ""


def test_a_machine_that_cannot_be_read_is_an_answer_with_the_reason(environ, served, tmp_path):
    port, process = served
    process.kill()
    process.wait()
    broken = {**environ, "COTENANT_HOME": str(tmp_path), "COTENANT_SIMULATE": "2xTitan"}
    again = subprocess.Popen(
        [*COTENANT, "metrics", "--listen", f"127.0.0.1:{port}"], env=broken, stderr=subprocess.PIPE, text=True
    )
    try:
        assert "serving" in again.stderr.readline()
        status, _, text = fetch(port)
        assert status == 503
        assert "no model 'Titan'" in text
    finally:
        again.kill()
        again.communicate()
    once = metrics(broken, "--once")
    assert once.returncode != 0
    assert "no model 'Titan'" in once.stderr


@pytest.mark.parametrize(
    ("text", "public", "found"),
    [
        ("127.0.0.1:8890", False, Address("127.0.0.1", 8890)),
        ("127.8.9.1:1", False, Address("127.8.9.1", 1)),
        ("[::1]:8890", False, Address("::1", 8890)),
        ("0.0.0.0:65535", True, Address("0.0.0.0", 65535)),
        ("[::]:1", True, Address("::", 1)),
    ],
)
def test_addresses(text, public, found):
    assert address(text, public=public) == found


@pytest.mark.parametrize(
    "text",
    ["", ":8890", "8890", "localhost:8890", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-1",
     "127.0.0.1:8 0", "127.0.0.1:٣", "[::1]", "::1:x", "[127.0.0.1:1", "x" * 9999, "127.0.0.1:" + "9" * 9999],
)  # fmt: skip
def test_what_is_no_address_is_named(text):
    with pytest.raises(
        BadInput, match=r"^listen: .* is not an IP address and a port, such as 127.0.0.1:8890"
    ):
        address(text, public=True)


@pytest.mark.parametrize("text", ["0.0.0.0:8890", "10.0.0.1:8890", "[::]:8890", "[fe80::1]:8890"])
def test_addresses_that_others_reach_need_a_word(text):
    with pytest.raises(BadInput, match=r"is not a loopback address.*--public"):
        address(text, public=False)


@pytest.mark.parametrize(
    "options",
    [("--once", "--write", "x"), ("--once", "--listen", "127.0.0.1:1"), ("--write", "x", "--public")],
)
def test_options_that_contradict_each_other_are_refused(environ, options):
    done = metrics(environ, *options)
    assert done.returncode == 2, done.stderr
    assert "leave" in done.stderr


def test_nothing_but_the_base_installation_is_needed():
    """Neither prometheus_client nor aiohttp, which belong to a cluster."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('prometheus_client', 'aiohttp', 'msgspec', 'numpy')))\n"
        "import cotenant.cli.metrics, cotenant.local.metrics, cotenant.local.metrics_server"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path.cwd()
    )
    assert done.returncode == 0, done.stderr
