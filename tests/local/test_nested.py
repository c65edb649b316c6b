"""`cotenant run` inside a grant uses that grant: nothing is charged twice, and nothing waits for itself."""

import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("program.py")
OUT_OF_MEMORY = "2"
GIB = 1 << 30


def inside(machine, outer, inner, *command, before=()):
    """`cotenant run OUTER -- cotenant run INNER -- command`."""
    words = [*before, *machine.line("run", *inner.split()), "--", *command]
    return machine("run", *outer.split(), "--", *words, timeout=30)


def test_it_uses_the_grant_and_charges_nothing(machine):
    count = [*machine.line("ps", "-o", "json")]
    done = inside(machine, "--gpu-memory 9Gi --name train", "--gpu-memory 9Gi", *count)
    assert '"limit": 9663676416' in done.stdout
    assert done.stdout.count('"limit"') == 2, "one grant, with one share"
    assert done.stderr == "cotenant: uses the grant that it is called in: train, 9Gi on GPU 0\n"
    assert machine.rows() == []


def test_the_limit_is_that_of_the_grant(machine):
    done = inside(machine, "--gpu-memory 2Gi", "--gpu-memory 1Gi", sys.executable, PROGRAM, 1024, 768, 2)
    assert done.stdout.split() == ["ok", "ok", OUT_OF_MEMORY]


@pytest.mark.parametrize("inner", ["--gpu-memory 4Gi", "--whole 1", "--gpu-memory 2Gi --gpus 2", "--gpus 1"])
def test_more_than_the_grant_has_is_refused_at_once(simulate, inner):
    """There is no room beside the outer grant: to wait would be to wait for ever."""
    machine = simulate("1x16GiB")
    done = inside(machine, "--gpu-memory 13Gi --name train", inner.replace("4Gi", "14Gi"), "true")
    assert done.returncode == 2
    assert "asked inside the grant of train, which has 13Gi on GPU 0" in done.stderr
    assert "cotenant resize train" in done.stderr
    assert machine.rows() == []


def test_also_where_there_would_be_room(machine):
    done = inside(machine, "--gpu-memory 1Gi", "--gpu-memory 10Gi", "true")
    assert done.returncode == 2


@pytest.mark.parametrize("outer", ["--gpu-memory 2Gi", "--whole 1", "--gpu-memory 4Gi --gpus 2"])
def test_without_a_size_it_is_the_whole_grant(machine, outer):
    script = 'test -f "$COTENANT_SLOT/limits" && echo "$CUDA_VISIBLE_DEVICES"'
    done = inside(machine, outer, "", "sh", "-c", script)
    seen = done.stdout.strip().split(",")
    assert seen == [card.uuid for card in machine.cards.cards()][: len(seen)]
    assert len(seen) == (2 if "--gpus" in outer else 1)


def test_a_whole_gpu_covers_every_part_of_it(machine):
    assert inside(machine, "--whole 1", "--gpu-memory 100%", "true").returncode == 0
    assert inside(machine, "--whole 1", "--whole 1", "true").returncode == 0
    assert inside(machine, "--whole 1", "--gpu-memory 4Gi --gpu-compute 50", "true").returncode == 0
    assert inside(machine, "--gpu-memory 8Gi --gpu-compute 30", "--gpu-memory 4Gi --gpu-compute 50", "true").returncode == 2  # fmt: skip


def test_the_gpus_it_names_are_those_it_sees(machine):
    first, second = (card["uuid"] for card in machine.listing("gpus")["gpus"])
    script = 'echo "$CUDA_VISIBLE_DEVICES"'
    done = inside(
        machine, "--gpu-memory 8Gi --gpus 2", f"--gpu-memory 4Gi --gpu {second}", "sh", "-c", script
    )
    assert done.stdout.strip() == second
    done = inside(machine, f"--gpu-memory 8Gi --gpu {first}", f"--gpu-memory 4Gi --gpu {second}", "true")
    assert done.returncode == 2


def test_what_the_outer_command_made_visible_stays_so(machine):
    done = inside(
        machine, "--gpu-memory 8Gi --gpus 2", "", "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"',
        before=["env", "CUDA_VISIBLE_DEVICES=1"],
    )  # fmt: skip
    assert done.stdout == "1\n"


def test_a_cleared_environment_does_not_hide_the_grant(machine):
    keep = [f"{name}={machine.environ[name]}" for name in ("PATH", "COTENANT_HOME", "COTENANT_SIMULATE")]
    done = inside(
        machine, "--gpu-memory 2Gi --name train", "--gpu-memory 1Gi", sys.executable, PROGRAM, 1024, 1024,
        before=["env", "-i", *keep],
    )  # fmt: skip
    assert "uses the grant that it is called in: train" in done.stderr
    assert done.stdout.split() == ["ok", OUT_OF_MEMORY]


def test_a_daemon_of_the_grant_is_still_inside(machine, tmp_path, until):
    """Its ancestors are gone; its environment names the slot, which it keeps in use."""
    out = tmp_path / "out"
    inner = " ".join(machine.line("run", "--gpu-memory", "1Gi", "--", "true"))
    done = machine(
        "run", "--gpu-memory", "2Gi", "--name", "train", "--",
        "sh", "-c", f"(setsid sh -c 'sleep 0.3; {inner}' >{out} 2>&1 &)",
    )  # fmt: skip
    assert done.returncode == 0
    assert until(lambda: "called in: train" in out.read_text())


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -TERM $$", 143)])
def test_the_exit_code_comes_through_both(machine, script, code):
    assert inside(machine, "--gpu-memory 2Gi", "--gpu-memory 1Gi", "sh", "-c", script).returncode == code


def test_a_command_that_cannot_be_started(machine, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/nonexistent/interpreter\n")
    script.chmod(0o755)
    assert inside(machine, "--gpu-memory 2Gi", "--gpu-memory 1Gi", "/nonexistent/tool").returncode == 127
    assert inside(machine, "--gpu-memory 2Gi", "--gpu-memory 1Gi", script).returncode == 127


def test_another_ledger_knows_nothing_of_this_grant(machine, simulate):
    """Other GPUs, as `--simulate` makes them, have a ledger of their own: there it is a grant of its own."""
    done = inside(machine, "--gpu-memory 1Gi", "--simulate 1x8GiB --gpu-memory 4Gi", "true")
    assert (done.returncode, done.stderr) == (0, "")
