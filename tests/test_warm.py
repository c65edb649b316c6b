"""A fork of `cotenant` is what a start of it would be, to those who call it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm
from kube.apiserver import unused_ports

START = [sys.executable, "-m", "cotenant.cli.main"]


@pytest.mark.parametrize(
    "words", [["--version"], ["gpus", "--bogus"], ["--simulate", "1x16GiB", "gpus"]], ids=" ".join
)
def test_it_says_and_returns_the_same(words: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "COTENANT_HOME": str(tmp_path)}
    started = subprocess.run([*START, *words], env=environment, capture_output=True, text=True, check=False)
    forked = warm.run(words, env=environment)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )


def test_input_folder_and_environment_are_its_own(tmp_path: Path) -> None:
    samples = "".join(f"{60 * at},web,main,{1 << 30}\n" for at in range(60 * 24))
    done = warm.run(["recommend", "--from-csv", "-", "--plot", "out.svg"], input=samples, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.svg").exists()
    assert warm.run(["gpus"], env={**os.environ, "COTENANT_SIMULATE": "nonsense"}).returncode == 2
    assert "COTENANT_SIMULATE" not in os.environ


def test_what_the_loader_or_python_reads_at_the_start_needs_one() -> None:
    assert warm.can_start(dict(os.environ))
    assert warm.can_start({**os.environ, "COTENANT_HOME": "/x"})
    for name in ("LD_PRELOAD", "PYTHONOPTIMIZE", "LC_ALL"):
        assert not warm.can_start({**os.environ, name: "other"})


def test_it_can_be_killed_and_says_by_what(tmp_path: Path) -> None:
    environment = {**os.environ, "COTENANT_HOME": str(tmp_path), "COTENANT_SIMULATE": "1x16GiB"}
    files = os.devnull, str(tmp_path / "out"), str(tmp_path / "err")
    (port,) = unused_ports(1)
    process = warm.Process(["metrics", "--listen", f"127.0.0.1:{port}"], environment, files)
    until = time.monotonic() + 30
    while not (tmp_path / "out").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert process.poll() is None, (tmp_path / "err").read_text()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    process.terminate()
