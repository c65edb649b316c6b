"""A command under `cotenant run`, from its start to its end: real processes on simulated cards."""

import os
import platform
import pty
import pwd
import re
import signal
import struct
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("program.py")
OUT_OF_MEMORY = "2"
MIB = 1 << 20
GIB = 1 << 30


def said(process):
    return process.stdout.readline().strip()


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 200", 200), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
def test_the_exit_code_is_passed_through(machine, script, code):
    done = machine("run", "--gpu-memory", "1Gi", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert machine.rows() == []
    assert list(machine.home.slots.iterdir()) == []


def test_it_sees_its_card_its_slot_and_its_input(machine):
    script = 'test -f "$COTENANT_SLOT/limits" && echo "$CUDA_VISIBLE_DEVICES" && cat && echo "$0:$1" >&2'
    done = machine("run", "--gpu-memory", "1Gi", "--", "sh", "-c", script, "zero", "--one", input="hello\n")
    assert done.stdout == f"{machine.cards.cards()[0].uuid}\nhello\n"
    assert done.stderr == "zero:--one\n"


def test_it_is_stopped_at_its_limit(machine):
    """2 GiB hold one context of 256 MiB and 1792 MiB of memory, and not a granule more."""
    done = machine("run", "--gpu-memory", "2Gi", "--", sys.executable, PROGRAM, 1024, 768, 2)
    assert done.stdout.split() == ["ok", "ok", OUT_OF_MEMORY]


@pytest.mark.parametrize(("mode", "lines"), [("observe", 0), ("warn", 1)])
def test_it_may_only_be_watched(machine, mode, lines):
    done = machine("run", "--gpu-memory", "1Gi", "--enforce", mode, "--", sys.executable, PROGRAM, 1024, 1024)
    assert done.stdout.split() == ["ok", "ok"]
    *warnings, summary = done.stderr.splitlines()
    assert len(warnings) == lines
    if lines:
        assert "asks for 1Gi more on GPU-" in warnings[0]
        assert "beyond the limit of 1Gi: allowed" in warnings[0]
    assert summary.startswith("cotenant: program: peak 2.2Gi of 1Gi, 2 let through, ")
    assert summary.endswith("; 2.5Gi would do")


def test_memory_over_several_cards(machine):
    done = machine(
        "run", "--gpu-memory", "8Gi", "--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"
    )
    assert done.stdout.strip().split(",") == [card.uuid for card in machine.cards.cards()]


def test_a_card_is_chosen_by_index_uuid_or_the_beginning_of_it(machine):
    machine.settle()
    first, second = (card.uuid for card in machine.cards.cards())
    show = ("--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    apart = next(at for at in range(5, len(second)) if not first.startswith(second[:at]))
    for asked in ("1", second, second[:apart], second[4:apart]):
        done = machine("run", "--gpu-memory", "1Gi", "--gpu", asked, *show)
        assert (done.stdout.strip(), done.stderr) == (second, ""), asked
    both = machine("run", "--whole", "2", "--gpu", "0", "--gpu", second, *show)
    assert both.stdout.strip().split(",") == [first, second]
    assert machine("run", "--whole", "2", "--gpu", "0,1", *show).stdout == both.stdout
    none = machine("run", "--gpu-memory", "1Gi", "--gpu", "2", *show)
    assert none.returncode == 2
    assert f"2 asked, no such GPU is here: there is {first} (GPU 0" in none.stderr


def test_a_whole_card_is_shared_with_nobody(machine):
    first = machine.start("run", "--whole", "1", "--", sys.executable, PROGRAM, "ready", "hold")
    assert said(first) == "ready"
    (row,) = machine.rows()
    assert row["shares"][0]["whole"]
    assert machine("run", "--gpu-memory", "17%", "--gpus", "2", "--no-wait", "--", "true").returncode == 75
    assert machine("run", "--gpu-memory", "100%", "--no-wait", "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["/nonexistent/tool"], 127, "was not found"),
        (["no-such-command-here"], 127, "in PATH"),
        (["/etc/passwd"], 126, "not an executable"),
        (["/tmp"], 126, "not an executable"),
    ],
)
def test_a_command_that_cannot_be_started(machine, command, code, words):
    done = machine("run", "--gpu-memory", "1Gi", "--", *command)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_whose_interpreter_is_missing_gives_its_room_back(machine, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/nonexistent/interpreter\n")
    script.chmod(0o755)
    done = machine("run", "--gpu-memory", "1Gi", "--", script)
    assert done.returncode == 127
    assert "/nonexistent/interpreter" in done.stderr
    assert machine.rows() == []


def test_a_script_without_a_first_line_is_run_by_a_shell(machine, tmp_path):
    script = tmp_path / "script"
    script.write_text('echo "plain $1"\n')
    script.chmod(0o755)
    assert machine("run", "--gpu-memory", "1Gi", "--", script, "words").stdout == "plain words\n"


COUNTING = """
import os, signal, sys, time
got = []
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), lambda number, frame: got.append(signal.Signals(number).name))
print("ready", flush=True)
end = time.monotonic() + 10
while not got and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.3)
print(*got, flush=True)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"])
def test_signals_go_on_to_the_command(machine, name):
    process = machine.run("1Gi", sys.executable, "-c", COUNTING, name)
    assert said(process) == "ready"
    process.send_signal(getattr(signal, name))
    assert said(process) == name
    assert process.wait(10) == 0


def test_a_terminal_s_interrupt_reaches_the_command_once(machine):
    """The terminal signals the whole group, the runner included: it must not signal again."""
    pid, terminal = pty.fork()
    if pid == 0:
        line = machine.line("run", "--gpu-memory", "1Gi", "--", sys.executable, "-c", COUNTING, "SIGINT")
        os.execve(line[0], line, machine.environ)
    try:
        seen = b""
        while b"ready" not in seen:
            seen += os.read(terminal, 1024)
        os.write(terminal, b"\x03")
        while seen.count(b"\n") < 2:
            seen += os.read(terminal, 1024)
        assert seen.replace(b"^C", b"").split() == [b"ready", b"SIGINT"]
    finally:
        os.kill(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(child, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else "ended", flush=True)
os.killpg(child, signal.SIGCONT)
_, status = os.waitpid(child, 0)
print("exit", os.waitstatus_to_exitcode(status), flush=True)
"""


def test_a_terminal_s_stop_stops_both_and_both_go_on(machine):
    """As under a shell with job control: Ctrl-Z gives the prompt back, `fg` goes on."""
    pid, terminal = pty.fork()
    if pid == 0:
        line = machine.line(
            "run", "--gpu-memory", "1Gi", "--", "sh", "-c", "echo ready; sleep 0.5; echo done; exit 7"
        )
        os.execve(sys.executable, [sys.executable, "-c", SHELL, *line], machine.environ)
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1024)
    os.write(terminal, b"\x1a")
    while not re.search(rb"exit \d+\r", seen):
        seen += os.read(terminal, 1024)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert seen.replace(b"^Z", b"").split() == [b"ready", b"stopped", b"done", b"exit", b"7"]


def test_it_waits_in_line_and_starts_when_there_is_room(simulate, until):
    machine = simulate("1x16GiB")
    first = machine.holder("13Gi", "ready", "hold")
    assert said(first) == "ready"
    second = machine.holder("4Gi", "ready", "hold", options=["--name", "second"])
    line = second.stderr.readline()
    assert line == "cotenant: 4Gi asked, largest free room 3Gi on GPU 0: waiting, 1st in line\n"
    third = machine.holder("14Gi", "ready", "hold", options=["--name", "third"])
    assert (
        third.stderr.readline()
        == "cotenant: 14Gi asked, largest free room 3Gi on GPU 0: waiting, 2nd in line\n"
    )
    listed = machine.listing("ps")
    assert [(each["name"], each["place"]) for each in listed["line"]] == [("second", 1), ("third", 2)]
    began = time.monotonic()
    first.stdin.close()
    assert said(second) == "ready"
    assert time.monotonic() - began < 2, "it starts the moment there is room"
    assert second.stderr.readline().startswith("cotenant: room after")
    assert (
        third.stderr.readline()
        == "cotenant: 14Gi asked, largest free room 12Gi on GPU 0: waiting, 1st in line\n"
    )
    second.stdin.close()
    assert said(third) == "ready"
    third.stdin.close()
    assert [process.wait(10) for process in (first, second, third)] == [0, 0, 0]
    assert machine.rows() == []


def test_without_waiting_it_exits_75(simulate):
    machine = simulate("1x16GiB")
    assert said(machine.holder("13Gi", "ready", "hold")) == "ready"
    done = machine("run", "--gpu-memory", "4Gi", "--no-wait", "--", "true")
    assert done.returncode == 75
    assert done.stderr == "cotenant: 4Gi asked, largest free room 3Gi on GPU 0: not waiting, as asked\n"
    assert len(machine.rows()) == 1


def test_when_the_time_is_over_it_exits_75(simulate):
    machine = simulate("1x16GiB")
    assert said(machine.holder("13Gi", "ready", "hold")) == "ready"
    began = time.monotonic()
    done = machine("run", "--gpu-memory", "4Gi", "--wait-timeout", "300ms", "--", "true")
    assert done.returncode == 75
    assert 0.3 <= time.monotonic() - began < 10
    assert "largest free room 3Gi" in done.stderr.splitlines()[-1]
    assert len(machine.rows()) == 1


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_waiting(simulate, until, name):
    machine = simulate("1x16GiB")
    assert said(machine.holder("13Gi", "ready", "hold")) == "ready"
    waiting = machine.run("4Gi", "true")
    assert "1st in line" in waiting.stderr.readline()
    number = getattr(signal, name)
    waiting.send_signal(number)
    assert waiting.wait(10) == 128 + number
    assert len(machine.rows()) == 1


def test_memory_outside_grants_is_counted_and_its_end_is_noticed(simulate):
    machine = simulate("1x16GiB")
    outside = machine.start("standin", "--", sys.executable, PROGRAM, 13 * 1024 - 256, "ready", "hold")
    assert said(outside) == "ok"
    (card,) = machine.listing("gpus")["gpus"]
    assert (card["free"], card["outside"], card["granted"]) == (3 * GIB, 13 * GIB, 0)
    assert card["strangers"][0]["bytes"] == 13 * GIB
    me = pwd.getpwuid(os.getuid()).pw_name
    assert card["strangers"][0]["user"] == me
    pid = card["strangers"][0]["pid"]
    assert f"pid {pid} of {me} outside" in machine("gpus").stdout
    assert f"pid {pid} of {me} (13Gi)" in machine("doctor").stdout
    waiting = machine.holder("4Gi", "ready", "hold")
    assert "largest free room 3Gi on GPU 0: waiting" in waiting.stderr.readline()
    outside.stdin.close()
    began = time.monotonic()
    assert said(waiting) == "ready"
    assert time.monotonic() - began < 3


def test_ps_tells_what_is_in_use(machine):
    process = machine.holder("2Gi", 512, 2048, "ready", "hold", options=["--name", "train"])
    assert [said(process) for _ in range(3)] == ["ok", OUT_OF_MEMORY, "ready"]
    (grant,) = machine.listing("ps")["grants"]
    assert (grant["name"], grant["limit"], grant["used"], grant["peak"]) == (
        "train",
        2 * GIB,
        768 * MIB,
        768 * MIB,
    )
    assert (grant["denied"], grant["enforcer"], grant["mode"]) == (1, "shim", "enforce")
    assert 0 <= grant["idle_seconds"] < 60
    assert grant["processes"] == [grant["pid"]]
    assert "train" in machine("ps").stdout


def test_resize_reaches_a_running_command(machine):
    process = machine.start(
        "run", "--gpu-memory", "2Gi", "--name", "train", "--", sys.executable, "-u", "-c",
        f"import sys; sys.argv = [{str(PROGRAM)!r}]; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import program\n"
        "for line in sys.stdin: program.allocate(int(line))",
    )  # fmt: skip

    def allocate(mebibytes):
        process.stdin.write(f"{mebibytes}\n")
        process.stdin.flush()
        return said(process)

    assert [allocate(1024), allocate(1024)] == ["ok", OUT_OF_MEMORY]
    assert machine("resize", "train", "6Gi").stdout == "train: 2Gi -> 6Gi\n"
    assert [allocate(1024), allocate(2048)] == ["ok", "ok"]
    refused = machine("resize", "train", "4Gi")
    assert refused.returncode == 75
    assert "4.2Gi in use" in refused.stderr
    assert machine("resize", "train", "4608Mi").returncode == 0
    assert [allocate(512), allocate(256)] == [OUT_OF_MEMORY, "ok"]
    assert machine("resize", "train", "17Gi").returncode == 75


def test_stop_ends_it(machine):
    process = machine.holder("1Gi", "ready", "hold", options=["--name", "train"])
    assert said(process) == "ready"
    assert machine("stop", "train").stdout == "train has ended\n"
    assert process.wait(10) == 143
    assert machine.rows() == []


def test_stop_kills_what_does_not_listen(machine):
    process = machine.run("1Gi", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    assert said(process) == "ready"
    assert machine("stop", "sh", "--timeout", "200ms").stdout == "sh was killed\n"
    assert process.wait(10) == 137


def test_stop_ends_what_waits(simulate):
    machine = simulate("1x16GiB")
    assert said(machine.holder("13Gi", "ready", "hold")) == "ready"
    waiting = machine.run("4Gi", "true", options=["--name", "later"])
    assert "in line" in waiting.stderr.readline()
    assert machine("stop", "later").returncode == 0
    assert waiting.wait(10) == 143
    assert len(machine.rows()) == 1


@pytest.mark.parametrize("share", ["30", "30%"])
def test_compute_that_nobody_enforces_is_said_so(machine, share):
    process = machine.run("1Gi", "sh", "-c", "echo ready; read x", options=["--gpu-compute", share])
    assert process.stderr.readline().startswith("cotenant: compute: not enforced (30% is counted")
    assert said(process) == "ready"
    assert "compute: not enforced" in machine("ps").stdout
    assert machine("run", "--gpu-memory", "1Gi", "--gpu-compute", "101", "--", "true").returncode == 2


def test_less_than_a_context_is_warned_of(machine):
    done = machine("run", "--gpu-memory", "100Mi", "--", "true")
    assert done.returncode == 0
    assert "less than one CUDA context takes (256Mi)" in done.stderr


def test_what_the_user_preloads_is_kept(machine, tmp_path):
    missing = tmp_path / "mine.so"
    done = machine(
        "run", "--gpu-memory", "1Gi", "--", "sh", "-c", "echo $LD_PRELOAD", env={"LD_PRELOAD": str(missing)}
    )
    assert done.stdout.strip().split(":")[1:] == [str(missing)]
    assert done.stdout.startswith(str(machine.shim))


def test_a_card_that_falls_off_the_bus(machine):
    """Its grants stay, it takes no new ones, and the other card goes on."""
    first = machine.holder("4Gi", "ready", "hold", options=["--name", "first"])
    assert said(first) == "ready"
    lost, well = (card.uuid for card in machine.cards.cards())
    machine.cards.fail(lost)
    cards = machine.listing("gpus")["gpus"]
    assert [(c["uuid"], c["healthy"], c["granted"], c["free"]) for c in cards] == [
        (lost, False, 4 * GIB, 0),
        (well, True, 0, 16 * GIB),
    ]
    assert cards[0]["memory"] == 16 * GIB
    assert "SICK" in machine("gpus").stdout
    done = machine("run", "--gpu-memory", "4Gi", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert done.stdout == f"{well}\n"
    refused = machine("run", "--gpu-memory", "4Gi", "--gpu", lost, "--no-wait", "--", "true")
    assert refused.returncode == 75
    assert "no GPU that matches is healthy" in refused.stderr
    first.stdin.close()
    assert first.wait(10) == 0
    machine.cards.recover(lost)
    assert all(card["healthy"] and not card["granted"] for card in machine.listing("gpus")["gpus"])


EXIT_7 = {
    "x86_64": bytes.fromhex("b83c000000bf070000000f05"),
    "aarch64": bytes.fromhex("a80b80d2e00080d2010000d4"),
}
"""The machine's own words for exit(7)."""


def test_a_static_program_is_run_and_said_to_be_only_watched(machine, tmp_path):
    """No loader, so no shim: the charge holds, the limit does not, and nobody is told otherwise."""
    code = EXIT_7[platform.machine()]
    kind = {"x86_64": 62, "aarch64": 183}[platform.machine()]
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack("<HHIQQQIHHHHHH", 2, kind, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 120 + len(code), 120 + len(code), 0x1000)
    program = tmp_path / "static"
    program.write_bytes(header + segment + code)
    program.chmod(0o755)
    done = machine("run", "--gpu-memory", "1Gi", "--", program)
    assert done.returncode == 7
    assert done.stderr == f"cotenant: {program} is linked statically: limits are watched, not enforced\n"


def test_a_program_for_musl_is_not_given_the_shim(machine, tmp_path):
    """It would abort at it. The loader is missing here, so it cannot start either; what counts is what is said."""
    interpreter = b"/lib/ld-musl-x86_64.so.1\0"
    segment = struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, len(interpreter), len(interpreter), 1)
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    program = tmp_path / "musl"
    program.write_bytes(header + segment + interpreter)
    program.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    for command in (program, script):
        done = machine("run", "--gpu-memory", "1Gi", "--", command)
        assert done.returncode in (126, 127)
        assert "made for musl, not glibc: limits are watched, not enforced" in done.stderr
    assert machine.rows() == []
