"""What scripts/tests.py makes of pytest's results: what is run again, what is FLAKY, what fails the run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from claims import Claims

SCRIPT = Path(__file__).parents[2] / "scripts/tests.py"
CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tests_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pytest:
    """Fails with what each run is to fail with, and leaves pytest's record of it."""

    def __init__(self, cache: Path, *runs: tuple[int, Sequence[str]]) -> None:
        self.cache, self.runs = cache, list(runs)
        self.called: list[list[str]] = []

    def __call__(self, name: str, arguments: Sequence[str]) -> int:
        self.called.append(list(arguments))
        code, failed = self.runs.pop(0)
        record = self.cache / name / "v/cache/lastfailed"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(dict.fromkeys(failed, True)))
        return code


def test_what_passes_is_run_once(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest_ = Pytest(tmp_path, (0, []))
    assert script.run("kubelet", pytest_, cache=tmp_path) == 0
    assert len(pytest_.called) == 1
    assert script.report_flaky(["kubelet"], tmp_path) == 0
    assert capsys.readouterr().out == "FLAKY: 0\n"


def test_what_passes_when_run_again_is_flaky(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest_ = Pytest(tmp_path, (1, ["t.py::late"]), (0, []))
    assert script.run("kubelet", pytest_, cache=tmp_path) == 0
    assert "--last-failed" in pytest_.called[1]
    assert script.report_flaky(["kubelet"], tmp_path) == 0
    assert capsys.readouterr().out.endswith("FLAKY: t.py::late\nFLAKY: 1\n")


def test_what_fails_again_fails_the_run_and_is_not_flaky(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest_ = Pytest(tmp_path, (1, ["t.py::late", "t.py::broken"]), (1, ["t.py::broken"]))
    assert script.run("kubelet", pytest_, cache=tmp_path) == 1
    script.report_flaky(["kubelet"], tmp_path)
    assert capsys.readouterr().out.endswith("FLAKY: t.py::late\nFLAKY: 1\n")


@pytest.mark.parametrize("code", [2, 3, 4, 5, -9])
def test_what_is_no_failure_of_tests_is_not_run_again(script: ModuleType, tmp_path: Path, code: int) -> None:
    pytest_ = Pytest(tmp_path, (code, []))
    assert script.run("kubelet", pytest_, cache=tmp_path) == code
    assert len(pytest_.called) == 1


def test_a_second_run_that_was_killed_makes_nothing_flaky(script: ModuleType, tmp_path: Path) -> None:
    pytest_ = Pytest(tmp_path, (1, ["t.py::late"]), (-9, []))
    assert script.run("kubelet", pytest_, cache=tmp_path) == -9
    assert (tmp_path / "flaky/kubelet.0").read_text() == ""


@pytest.mark.parametrize(("count", "code"), [(2, 0), (3, 1)])
def test_more_than_two_over_all_sets_fail_the_run(
    script: ModuleType, tmp_path: Path, count: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(count):
        script.record(f"{list(script.SETS)[i]}.{i}", frozenset({f"t.py::{i}"}), tmp_path)
    assert script.report_flaky(list(script.SETS), tmp_path) == code
    assert f"FLAKY: {count}" in capsys.readouterr().out


def test_an_earlier_run_is_not_counted(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.record("kubelet.0", frozenset({"t.py::late"}), tmp_path)
    script.forget(["kubelet"], tmp_path)
    script.report_flaky(["kubelet"], tmp_path)
    assert capsys.readouterr().out == "FLAKY: 0\n"


def results(cache: Path, name: str, **counts: int) -> None:
    said = " ".join(f'{what}="{number}"' for what, number in counts.items())
    (cache / "results").mkdir(exist_ok=True)
    (cache / "results" / name).write_text(f"<testsuites><testsuite {said}/></testsuites>")


def test_the_total_counts_each_test_once(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results(tmp_path, "kubelet.0.first", tests=10, failures=2, errors=1, skipped=3)
    results(tmp_path, "kubelet.0.again", tests=3, failures=1, errors=0, skipped=0)
    results(tmp_path, "kubelet.1.first", tests=4, failures=1, errors=0, skipped=0)
    results(tmp_path, "keda.0.first", tests=100, failures=0, errors=0, skipped=0)
    script.report_total(["kubelet"], 83.4, tmp_path)
    assert capsys.readouterr().out == "2 failed, 9 passed, 3 skipped in 83.40s (0:01:23)\n"
    script.forget(["kubelet"], tmp_path)
    script.report_total(["kubelet"], 1, tmp_path)
    assert capsys.readouterr().out == "no tests ran in 1.00s (0:00:01)\n"


def test_the_total_is_read_from_what_pytest_writes(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n\n\ndef test_a(): pass\n\n\ndef test_b(): assert 0\n\n\ndef test_c(): pytest.skip('no')\n"
    )
    written = tmp_path / "results/kubelet.0.first"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junit-xml={written}", "."]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert script.count(written) == {"passed": 1, "failed": 1, "skipped": 1}


@pytest.mark.parametrize(("codes", "code"), [((0, 0), 0), ((0, 1), 1), ((0, -15), -15), ((2, 1), 2)])
def test_a_lane_that_was_killed_fails_the_run(script: ModuleType, codes: tuple[int, ...], code: int) -> None:
    assert script.worst(*codes) == code


def test_every_test_is_in_one_set(script: ModuleType) -> None:
    """Whatever markers a test has: no set forgets it, and no two run it."""
    from itertools import product

    names = ("machine", "api_server", "control_plane", "kubelet", "keda")
    for has in product((False, True), repeat=5):
        marked = dict(zip(names, has, strict=True))
        if marked["kubelet"] and not marked["control_plane"]:
            continue  # tests/cluster marks both
        if marked["keda"] and (marked["kubelet"] or not marked["control_plane"]):
            continue  # likewise, and KEDA scales pods of hollow nodes
        if marked["api_server"] and (marked["control_plane"] or marked["machine"]):
            continue  # in different folders
        if marked["control_plane"] and marked["machine"]:
            continue
        chosen = [name for name, (_, _, expression) in script.SETS.items() if eval(expression, {}, marked)]
        assert len(chosen) == 1, (marked, chosen)


def test_the_least_covered_files_come_first(script: ModuleType) -> None:
    shares = {"b.py": 50.0, "a.py": 50.0, "c.py": 100.0, "d.py": 0.0}
    report = {"files": {path: {"summary": {"percent_covered": share}} for path, share in shares.items()}}
    assert script.least_covered(report, 3) == [("d.py", 0.0), ("a.py", 50.0), ("b.py", 50.0)]


def run_lanes(folder: Path, count: int) -> list[subprocess.CompletedProcess[str]]:
    """Runs the tests of a folder in lanes, as scripts/tests.py does."""
    if not (folder / "conftest.py").exists():
        (folder / "conftest.py").write_text(CONFTEST.read_text())
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        f"--claims={folder / 'claims'}",
        ".",
    ]
    environment = os.environ | {"PYTHONPATH": str(CONFTEST.parent)}
    lanes = [
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(count)
    ]
    return [
        subprocess.CompletedProcess(command, lane.wait(), said)
        for lane in lanes
        for said in [lane.communicate()[0]]
    ]


def test_each_file_is_run_by_one_lane_whole(tmp_path: Path) -> None:
    """Also where a lane passes over files in the middle of a folder, and over a whole folder."""
    files = [f"{folder}/test_{folder}{at}.py" for folder in "xyz" for at in range(4)]
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("def test_a(): pass\n\n\ndef test_b(): pass\n")
    done = run_lanes(tmp_path, 3)
    said = [each.stdout for each in done]
    passed = [set(re.findall(r"\w/test_\w+\.py::test_[ab](?= PASSED)", each)) for each in said]
    assert [each.returncode for each in done] == [0, 0, 0], said
    assert sorted(name for each in passed for name in each) == [
        f"{file}::test_{which}" for file in files for which in "ab"
    ]
    assert all(len(each) % 2 == 0 for each in passed)


def test_a_lane_passes_over_what_others_have_taken(tmp_path: Path) -> None:
    files = [f"{folder}/test_{folder}{at}.py" for folder in "xyz" for at in range(4)]
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("def test_a(): pass\n")
    others = Claims(tmp_path / "claims", "")
    taken = ["x/test_x1.py", "x/test_x3.py", *files[4:8]]
    assert all(others.take(tmp_path / each) for each in taken)
    (done,) = run_lanes(tmp_path, 1)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 6


def test_files_of_others_are_not_even_imported(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("raise SystemExit('imported')\n")
    assert Claims(tmp_path / "claims", "").take(tmp_path / "test_a.py")
    (done,) = run_lanes(tmp_path, 1)
    assert (done.returncode, "imported" in done.stdout) == (0, False), done.stdout


def test_fixtures_of_the_session_and_of_a_folder_outlive_the_file(tmp_path: Path) -> None:
    once = """
import pytest

MADE = []


@pytest.fixture(scope="session")
def once():
    MADE.append(1)
    return len(MADE)
"""
    (tmp_path / "tests/inner").mkdir(parents=True)
    (tmp_path / "tests/conftest.py").write_text(once)
    (tmp_path / "tests/inner/conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture\ndef inner(): return 2\n"
    )
    for name in "ab":
        (tmp_path / f"tests/test_{name}.py").write_text("def test_once(once): assert once == 1\n")
        (tmp_path / f"tests/inner/test_i{name}.py").write_text(
            "def test_two(once, inner): assert inner == 2\n"
        )
    (done,) = run_lanes(tmp_path, 1)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 4), done.stdout
