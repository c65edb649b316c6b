"""The files of `cotenant up`: private, whole at any time, bounded, and with one writer."""

import os
import subprocess
import sys

import pytest

from cotenant.cli import up
from cotenant.core.errors import BadInput, LedgerUnusable
from cotenant.local.scalers import supervising
from cotenant.local.scalers.folder import KEPT_OF_LOG, LARGEST_LOG, AlreadyScaling, ScalerFolder


@pytest.fixture
def folder(plain_machine):
    made = ScalerFolder(plain_machine.home)
    made.create()
    return made


def test_it_is_for_its_user_alone(folder):
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.path.chmod(0o755)
    with pytest.raises(LedgerUnusable, match="must be yours alone"):
        folder.create()


def test_a_folder_that_somebody_else_has_made_is_not_used(folder):
    if os.getuid() != 0:
        pytest.skip("only root may give a folder away")
    os.chown(folder.path, 65534, 65534)
    with pytest.raises(LedgerUnusable, match="must be yours alone"):
        folder.create()


def test_one_process_scales_and_its_death_frees_the_right(folder, plain_machine):
    script = (
        "import sys, pathlib; from cotenant.local.home import Home; from cotenant.local.scalers.folder import *\n"
        f"f = ScalerFolder(Home(pathlib.Path({str(folder.path.parent)!r}), None, False))\n"
        "with f.scaling(): print('holds', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "holds\n"
        assert folder.scaled_by() == other.pid
        with pytest.raises(AlreadyScaling, match=f"process {other.pid} scales"), folder.scaling():
            pass
        other.kill()
        other.wait()
    assert folder.scaled_by() is None
    with folder.scaling():
        assert folder.scaled_by() == os.getpid()


def test_a_record_that_cannot_be_read_is_empty(folder):
    folder.write_record("a", {"x": 1})
    assert (folder.record("a"), folder.records()) == ({"x": 1}, ["a"])
    (folder.path / "a.json").write_text('{"x": ')
    assert folder.record("a") == {}
    (folder.path / "a.json").write_text("[1]")
    assert folder.record("a") == {}
    folder.forget("a")
    assert folder.records() == []


@pytest.mark.parametrize("content", ['{"workloads": [1]}', '{"workl', "", "[]"])
def test_a_list_of_workloads_that_cannot_be_read_says_what_to_do(folder, content):
    assert folder.declared() == []
    (folder.path / "declared.json").write_text(content)
    with pytest.raises(BadInput, match=r"is damaged .* remove it, then `cotenant up` again"):
        folder.declared()


def test_a_list_of_workloads_that_cannot_be_opened_is_not_an_empty_one(folder):
    (folder.path / "declared.json").mkdir()
    with pytest.raises(LedgerUnusable, match=r"declared.json cannot be read: Is a directory"):
        folder.declared()


def test_whoever_scales_says_whether_it_takes_on_further_workloads(folder):
    assert not folder.only_stops()
    with folder.scaling(stops=True):
        assert (folder.scaled_by(), folder.only_stops()) == (os.getpid(), True)
    with folder.scaling():
        assert (folder.scaled_by(), folder.only_stops()) == (os.getpid(), False)
    assert not folder.only_stops()


def test_a_file_that_comes_while_the_last_workload_ends_is_taken_on(folder, plain_machine, monkeypatch):
    said, ends = [], [True, True, False]

    async def supervise(*_):
        return ends.pop(0)

    monkeypatch.setattr(supervising, "supervise", supervise)
    monkeypatch.setattr(folder, "declared", lambda: [] if len(ends) == 1 else ["work"])
    assert up.scale(plain_machine, folder, said.append) == 0
    assert (ends, said[-1]) == ([False], "nothing is up any more")


def test_a_log_keeps_its_end_while_its_writer_appends(folder):
    with folder.log("a-1").open("ab", buffering=0) as log:
        log.write(b"x" * LARGEST_LOG)
        folder.cut_log("a-1")
        assert folder.log("a-1").stat().st_size == LARGEST_LOG
        log.write(b"the end\n")
        folder.cut_log("a-1")
        log.write(b"more\n")
    content = folder.log("a-1").read_bytes()
    assert len(content) == KEPT_OF_LOG + 5
    assert content.endswith(b"the end\nmore\n")
    assert folder.last_line("a-1") == "more"
    assert folder.last_line("a-2") == ""
