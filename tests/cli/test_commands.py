"""The commands as people and scripts call them."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import warm

from cotenant.local.home import TMPFS, runtime_name


@pytest.fixture
def cotenant(tmp_path):
    base = tmp_path / "home"
    environ = {**os.environ, "COTENANT_HOME": str(base)}
    environ.pop("COTENANT_SIMULATE", None)

    def call(*words, env=None):
        done = warm.run(words, env={**environ, **(env or {})})
        assert "Traceback" not in done.stderr
        return done

    yield call
    for folder in (base, tmp_path / "all"):
        shutil.rmtree(TMPFS / runtime_name(folder, os.getuid()), ignore_errors=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu-memory", "4Q", "--", "true"], "4Gi, 4096Mi"),
        (["--gpu-memory", "0", "--", "true"], "more than zero"),
        (["--gpu-memory", "-4Gi", "--", "true"], "more than zero"),
        (["--gpu-memory", "120%", "--", "true"], "at most 100%"),
        (["--gpu-memory", "17Gi", "--", "true"], "the largest GPU has 16Gi"),
        (["--gpus", "3", "--gpu-memory", "1Gi", "--", "true"], "3 GPUs asked, there are 2"),
        (["--gpus", "0", "--", "true"], "gpus"),
        (["--whole", "0", "--", "true"], "--whole"),
        (["--whole", "3", "--", "true"], "3 whole GPUs asked, there are 2"),
        (["--gpu-memory", "1Gi", "--whole", "1", "--", "true"], "--whole or --gpu-memory"),
        (["--gpu-memory", "1Gi", "--gpu-model", "H100", "--", "true"], "H100 asked, no such GPU"),
        (["--gpu-memory", "1Gi", "--gpu-model", "A,,B", "--", "true"], "empty name"),
        (["--gpu-memory", "1Gi", "--gpu", "GPU-nowhere", "--", "true"], "GPU-nowhere asked, no such GPU"),
        (["--gpu-memory", "1Gi", "--gpu-compute", "0", "--", "true"], "1 to 100"),
        (["--gpu-memory", "1Gi", "--gpu-compute", "half", "--", "true"], "from 1 to 100, such as 30"),
        (["--gpu-memory", "1Gi", "--gpu-compute", "1.5", "--", "true"], "from 1 to 100, such as 30"),
        (["--gpu-memory", "1Gi", "--placement", "best", "--", "true"], "'frag', 'binpack', 'spread'"),
        (["--gpu-memory", "1Gi", "--enforce", "no", "--", "true"], "'observe', 'warn', 'enforce'"),
        (["--gpu-memory", "1Gi", "--name", "a b", "--", "true"], "is not valid"),
        (["--gpu-memory", "1Gi", "--wait-timeout", "10", "--", "true"], "did you mean 10s"),
        (["--gpu-memory", "1Gi", "--no-wait", "--wait-timeout", "1s", "--", "true"], "exclude each other"),
        (["--gpu-memory", "1Gi"], "no command"),
        (["--gpu-memory", "1Gi", "--bogus", "--", "true"], "--bogus"),
        (["--gpu-memory", "1Gi", "--", "docker", "run", "-d", "image"], "the grant lasts while"),
        (["--gpu-memory", "4", "--", "true"], "4Gi?"),
        (["--gpu-memory", "1Gi", "--priority", "high", "--", "true"], "--priority"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_exits_2_and_says_what_is_right(cotenant, words, said):
    done = cotenant("--simulate", "2x16GiB", "run", *words)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("spec", ["2x", "0x16GiB", "nonsense", "-1x16GiB", "1x16GiB,,", "99x16GiB"])
def test_cards_that_cannot_be_simulated(cotenant, spec):
    assert cotenant("--simulate", spec, "gpus").returncode == 2


def test_simulate_is_taken_before_and_after_and_from_the_environment(cotenant):
    spec = "1x16GiB,1xT4"
    told = [
        cotenant("--simulate", spec, "gpus", "-o", "json"),
        cotenant("gpus", "-o", "json", "--simulate", spec),
        cotenant("gpus", "-o", "json", env={"COTENANT_SIMULATE": spec}),
        cotenant("--simulate", "8x16GiB", "gpus", "-o", "json", "--simulate", spec),
    ]
    assert len({done.stdout for done in told}) == 1
    cards = json.loads(told[0].stdout)["gpus"]
    assert [(card["index"], card["model"]) for card in cards] == [
        (0, "NVIDIA Stand-in 16GiB"),
        (1, "Tesla T4"),
    ]
    assert cards[0]["memory"] == cards[0]["free"] == 16 << 30


def test_a_card_that_shares_the_hosts_memory_is_shown_as_such_and_can_be_granted(cotenant):
    env = {"COTENANT_SIMULATE": "GB10"}
    assert "memory shared with the host" in cotenant("gpus", env=env).stdout
    (card,) = json.loads(cotenant("gpus", "-o", "json", env=env).stdout)["gpus"]
    assert (card["healthy"], card["shared"], card["memory"] > 0) == (True, True, True)
    assert cotenant("run", "--gpu-memory", "64Mi", "--", "true", env=env).returncode == 0


def test_json_has_the_fields_that_scripts_rely_on(cotenant):
    script = f"{sys.executable} -m cotenant.cli.main ps -o json"
    words = ["run", "--gpu-memory", "1Gi", "--name", "outer", "--", "sh", "-c", script]
    told = json.loads(cotenant(*words, env={"COTENANT_SIMULATE": "2x16GiB"}).stdout)
    (grant,) = told["grants"]
    assert told["line"] == []
    assert set(grant) == {
        "id", "name", "user", "command", "pid", "mode", "enforcer", "compute", "limit", "used", "peak", "denied",
        "over", "idle_seconds", "running_seconds", "processes", "shares",
    }  # fmt: skip
    assert (grant["name"], grant["limit"], grant["used"]) == ("outer", 1 << 30, 0)
    assert grant["idle_seconds"] == grant["running_seconds"] > 0
    assert set(grant["shares"][0]) == {"uuid", "index", "limit", "used", "peak", "compute", "whole"}


def test_tables_need_no_terminal_and_no_colour(cotenant):
    done = cotenant("--simulate", "2x16GiB", "gpus")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[0].split()[:4] == ["GPU", "MODEL", "MEMORY", "FREE"]
    assert cotenant("--simulate", "2x16GiB", "ps").stdout == "nothing runs, nothing waits\n"


def test_tables_in_ascii_where_nothing_else_can_be_shown(cotenant):
    done = cotenant("--simulate", "1x16GiB", "gpus", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "." * 24 in done.stdout


def test_without_a_driver_it_says_so(cotenant):
    done = cotenant("gpus")
    if done.returncode == 0:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 1
    assert "--simulate 2x16GiB" in done.stderr


def test_a_name_that_is_not_there(cotenant):
    for words in (["stop", "ghost"], ["resize", "ghost", "4Gi"]):
        done = cotenant("--simulate", "1x16GiB", *words)
        assert done.returncode == 2
        assert "nothing named 'ghost'" in done.stderr


def test_standin_prints_what_a_shell_needs(cotenant):
    lines = cotenant("--simulate", "1x16GiB", "standin").stdout.splitlines()
    assert {line.split("=")[0] for line in lines} == {
        "export COTENANT_STANDIN",
        "export LD_LIBRARY_PATH",
        "export COTENANT_SIMULATE",
    }
    assert cotenant("standin").returncode == 2


def test_standin_runs_a_command_on_the_cards(cotenant):
    script = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    done = cotenant("--simulate", "3x16GiB", "standin", "--", sys.executable, "-c", script)
    assert done.stdout == "3\n"


def test_help_teaches_by_example(cotenant):
    told = cotenant("--help").stdout
    for command in ("gpus", "run", "ps", "stop", "resize"):
        assert command in told
    assert "cotenant run --gpu-memory 4Gi -- python train.py" in cotenant("run", "--help").stdout
    assert cotenant("nonsense").returncode == 2


def test_version(cotenant):
    done = cotenant("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("cotenant 0.")


def test_setup_is_for_root(cotenant, tmp_path):
    if os.getuid() != 0:
        assert cotenant("setup", "--folder", tmp_path / "all").returncode == 1
        return
    done = cotenant("setup", "--folder", tmp_path / "all")
    assert done.returncode == 0
    assert (tmp_path / "all").stat().st_mode & 0o777 == 0o777
    assert f"COTENANT_HOME={tmp_path / 'all'}" in done.stdout


def test_run_imports_nothing_heavy(tmp_path):
    script = (
        "import sys; sys.argv = ['cotenant', '--simulate', '1x16GiB', 'run', '--gpu-memory', '1Gi', '--', 'true']\n"
        "from cotenant.cli.main import group\n"
        "assert group.main(standalone_mode=False) == 0\n"
        "heavy = {'numpy', 'rich', 'asyncio', 'http', 'email', 'structlog', 'msgspec', 'yaml', 'cotenant.signals'}\n"
        "print(heavy & set(sys.modules))"
    )
    environ = {**os.environ, "COTENANT_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.parametrize("columns", [80, 50])
def test_tables_fit_the_terminal_and_a_pipe_gets_everything(cotenant, tmp_path, open_terminal, columns):
    environ = {
        **os.environ,
        "COTENANT_HOME": str(tmp_path / "home"),
        "COTENANT_SIMULATE": "2x16GiB",
        "PYTHONIOENCODING": "utf-8",
    }
    environ.pop("COLUMNS", None)
    line = [sys.executable, "-m", "cotenant.cli.main"]
    command = ["sh", "-c", "echo up; sleep 60; exit 0 with a long command line of many words"]
    run = [*line, "run", "--whole", "2", "--name", "everything", "--", *command]
    with subprocess.Popen(run, env=environ, stdout=subprocess.PIPE, text=True) as holder:
        holder.stdout.readline()
        waits = [*line, "run", "--gpu-memory", "1Gi", "--name", "later", "--", "true"]
        with subprocess.Popen(waits, env=environ, stderr=subprocess.PIPE, text=True) as waiting:
            waiting.stderr.readline()
            for what, heads in (("gpus", {"GPU", "FREE", "USED"}), ("ps", {"NAME", "GPU", "LIMIT", "USED"})):
                terminal = open_terminal([*line, what], environ, columns=columns)
                assert terminal.end() == 0
                lines = terminal.text().splitlines()
                assert max(map(len, lines)) <= columns
                assert heads <= set(lines[0].split())
                full = cotenant(what, env=environ).stdout
                assert "no room for" not in full
                said = terminal.text().partition("(no room for")[2].partition(")")[0]
                for head in set(full.splitlines()[0].split()) - set(lines[0].split()):
                    assert head in said
                if what == "ps":
                    assert "LINE" in terminal.text()
            waiting.terminate()
        cotenant("stop", "everything", "--timeout", "0s", env=environ)


def test_neither_a_dumb_terminal_nor_no_color_gets_colours(tmp_path, open_terminal):
    line = [sys.executable, "-m", "cotenant.cli.main", "--simulate", "1x16GiB", "gpus"]
    given = {**os.environ, "COTENANT_HOME": str(tmp_path / "home"), "TERM": "xterm"}
    given.pop("NO_COLOR", None)
    for more, coloured in (({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)):
        terminal = open_terminal(line, {**given, **more})
        assert terminal.end() == 0
        assert (b"\x1b" in terminal.seen) == coloured


def test_ps_says_who_waits_with_which_command_and_for_how_long_things_run(cotenant, tmp_path):
    environ = {"COTENANT_SIMULATE": "1x16GiB"}
    line = [sys.executable, "-m", "cotenant.cli.main"]
    given = {**os.environ, **environ, "COTENANT_HOME": str(tmp_path / "home")}
    hold = [
        *line,
        "run",
        "--gpu-memory",
        "16Gi",
        "--name",
        "idle",
        "--",
        "sh",
        "-c",
        "echo on; exec sleep 60",
    ]
    with subprocess.Popen(hold, env=given, stdout=subprocess.PIPE, text=True) as holder:
        holder.stdout.readline()
        waits = [*line, "run", "--gpu-memory", "1Gi", "--name", "later", "--", "sh", "-c", "exit 3"]
        with subprocess.Popen(waits, env=given, stderr=subprocess.PIPE, text=True) as waiting:
            waiting.stderr.readline()
            heads, idle, _, line_heads, later = cotenant("ps", env=environ).stdout.splitlines()
            shown = dict(zip(heads.split(), idle.split(), strict=False))
            assert shown["IDLE"].endswith("s")
            assert shown["TIME"].endswith("s")
            assert line_heads.split() == ["LINE", "NAME", "USER", "PID", "WAITED", "COMMAND", "WHY"]
            assert str(waiting.pid) in later
            assert "sh -c 'exit 3'" in later
            waiting.terminate()
        cotenant("stop", "idle", "--timeout", "0s", env=environ)
