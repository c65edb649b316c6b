"""A ledger that cannot be used: the command is not started, the exit is 1, and the words say what to do."""

import os
import shutil
import sqlite3
import subprocess

import pytest

needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root may mount a file system or become another user"
)


def started(machine, tmp_path, prefix=()):
    """Whether a command was started, and what was said instead."""
    trace = tmp_path / "trace"
    line = [*prefix, *machine.line("run", "--gpu-memory", "1Gi", "--", "touch", trace)]
    done = subprocess.run(line, env=machine.environ, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if trace.exists() else 1), done.stderr
    return trace.exists(), done.stderr


def mounted(script):
    """Run what follows after a script, in a mount namespace of its own."""
    return ["unshare", "-m", "sh", "-c", f'{script} && exec "$@"', "sh"]


def damage(machine):
    """The log beside the ledger holds the last pages of it, so it has to go too."""
    for file in machine.home.folder.glob("ledger.sqlite3-*"):
        file.unlink()
    machine.home.ledger.write_bytes(b"damaged" * 1000)


def test_a_damaged_ledger(machine, tmp_path):
    assert started(machine, tmp_path)[0]
    (tmp_path / "trace").unlink()
    damage(machine)
    ran, told = started(machine, tmp_path)
    assert not ran
    assert f"{machine.home.ledger} is damaged" in told
    assert "cotenant doctor --fix" in told
    for listing in ("ps", "gpus"):
        assert machine(listing).returncode == 1


def test_a_damaged_ledger_while_a_command_runs_loses_no_charge(machine, until):
    """The command's end is passed through all the same, and its slot tells whoever rebuilds."""
    process = machine.holder("4Gi", "ready", "hold")
    assert process.stdout.readline() == "ready\n"
    for file in machine.home.folder.glob("ledger.sqlite3*"):
        file.unlink()
    machine.settle()
    assert machine.charged() == 4 << 30
    process.stdin.close()
    assert process.wait(10) == 0
    assert machine.rows() == []


def test_who_waits_while_the_ledger_is_lost_comes_back_to_the_line(simulate):
    machine = simulate("1x16GiB")
    first = machine.holder("13Gi", "ready", "hold")
    assert first.stdout.readline() == "ready\n"
    waiting = machine.holder("4Gi", "ready", "hold")
    assert "1st in line" in waiting.stderr.readline()
    for file in machine.home.folder.glob("ledger.sqlite3*"):
        file.unlink()
    machine.settle()
    first.stdin.close()
    assert waiting.stdout.readline() == "ready\n"


@needs_root
def test_a_read_only_ledger(machine, tmp_path):
    assert started(machine, tmp_path)[0]
    (tmp_path / "trace").unlink()
    folder = machine.home.folder
    ran, told = started(machine, tmp_path, mounted(f"mount --bind -o ro {folder} {folder}"))
    assert not ran
    assert str(folder) in told
    assert machine.rows() == []


@needs_root
def test_a_full_disk_while_charging(machine, tmp_path):
    """The ledger's folder is a file system with room for the file, and none for another row."""
    folder = machine.home.folder
    fill = f"head -c 65536 /dev/zero >{folder}/fill 2>/dev/null"
    script = f"mount -t tmpfs -o size=64k none {folder} && {fill}; true"
    ran, told = started(machine, tmp_path, mounted(script))
    assert not ran
    assert "disk" in told or "No space" in told
    assert list(machine.home.slots.iterdir()) == []


@needs_root
def test_a_disk_that_fills_up_while_a_command_runs(machine, tmp_path, until):
    """Its end cannot be recorded: the exit code is passed through, and the next comer finds the room free."""
    folder = tmp_path / "small"
    folder.mkdir()
    shell = f"""
        mount -t tmpfs -o size=512k none {folder}
        export COTENANT_HOME={folder}
        "$@" run --gpu-memory 4Gi -- sh -c 'cat /dev/zero >{folder}/fill 2>/dev/null; exit 5'
        echo "exit $?"
        rm {folder}/fill
        "$@" run --whole 2 --no-wait -- true
        echo "exit $?"
    """
    line = ["unshare", "-m", "sh", "-c", shell, "sh", *machine.line()]
    done = subprocess.run(line, env=machine.environ, capture_output=True, text=True, check=False)
    assert done.stdout == "exit 5\nexit 0\n", done.stderr
    assert "Traceback" not in done.stderr


@needs_root
def test_no_room_for_the_slot_gives_the_charge_back(machine, tmp_path):
    slots = machine.home.slots
    script = f"mount -t tmpfs -o size=4k,nr_inodes=1 none {slots}"
    ran, told = started(machine, tmp_path, mounted(script))
    assert not ran
    assert "slot" in told
    assert machine.rows() == []


@needs_root
def test_a_folder_of_somebody_else(machine, tmp_path):
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and str(path).startswith("/tmp/pytest"):
            path.chmod(0o755)
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    ran, told = started(machine, tmp_path, other)
    assert not ran
    assert "COTENANT_HOME" in told


@needs_root
def test_two_users_share_a_folder_for_all(shared, until):
    """Each sees the other's grants, takes no room of theirs, and reaps what they left behind."""
    machine, as_other = shared
    mine = machine.holder("10Gi", "ready", "hold", options=["--name", "mine"])
    assert mine.stdout.readline() == "ready\n"
    assert "mine" in as_other("ps").stdout
    assert as_other("run", "--gpu-memory", "10Gi", "--no-wait", "--", "true").returncode == 75
    assert as_other("run", "--gpu-memory", "5Gi", "--", "true").returncode == 0
    refused = as_other("stop", "mine")
    assert refused.returncode == 1
    assert "belongs to root" in refused.stderr
    (row,) = machine.rows()
    mine.kill()
    os.kill(row["process"]["pid"], 9)
    done = as_other("run", "--gpu-memory", "16Gi", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.rows() == []
    theirs = as_other.start("run", "--gpu-memory", "10Gi", "--", "sleep", "60")
    until(lambda: any(row["process"]["pid"] != theirs.pid for row in machine.rows()))
    os.kill(machine.rows()[0]["process"]["pid"], 9)
    assert theirs.wait(10) == 137
    assert machine("run", "--gpu-memory", "16Gi", "--no-wait", "--", "true").returncode == 0


@needs_root
def test_a_home_of_each_user_counts_the_other_s_memory_as_taken(simulate, tmp_path):
    """Two homes on the same cards: what one user's commands hold is outside for the other."""
    machine = simulate("1x16GiB")
    first = machine.holder("8Gi", 4096, "ready", "hold")
    assert [first.stdout.readline(), first.stdout.readline()] == ["ok\n", "ready\n"]
    second = simulate("1x16GiB", "second")
    shutil.rmtree(second.home.runtime)
    second.home.runtime.mkdir()
    second.home.standin.symlink_to(machine.home.standin)
    (card,) = second.listing("gpus")["gpus"]
    assert (card["granted"], card["outside"], card["free"]) == (0, 4352 << 20, (16 << 30) - (4352 << 20))


@pytest.mark.parametrize("table", ["cards", "history"])
def test_a_row_that_makes_no_sense(machine, tmp_path, table):
    assert started(machine, tmp_path)[0]
    (tmp_path / "trace").unlink()
    column = "record" if table == "cards" else "demand"
    with sqlite3.connect(machine.home.ledger) as ledger:
        ledger.execute(f"UPDATE {table} SET {column} = '[1'")
    ran, told = started(machine, tmp_path)
    assert not ran
    assert "is damaged" in told
