"""Several users in one line: they take turns, and root may cap what each has."""

import os
import subprocess

import pytest

from cotenant.core.caps import Caps
from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput, NoRoom
from cotenant.local import line, slot_folder
from cotenant.local.machine import now
from cotenant.local.resize import resize
from cotenant.local.settings import load_caps
from cotenant.local.snapshot import snapshot, to_json

GIB = 1 << 30

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")


@pytest.fixture
def join(plain_machine, make_job):
    """Whole cards, so that each takes one of two."""

    def call(id, user, **fields):
        job = make_job(id, demand=Demand(whole=1), user=user, **fields)
        return line.join(plain_machine, job, wait=True, rename=False)

    return call


def waiting(machine):
    return [each["name"] for each in to_json(machine, snapshot(machine))["line"]]


def test_twenty_of_one_user_do_not_go_before_another_s_first(plain_machine, join):
    began = now()
    for at in range(20):
        join(f"a{at}", "ann", since=began + at)
    assert join("b0", "bob", since=began + 30).place == 1, "ann has had her turn"
    assert join("b1", "bob", since=began + 31).place == 3
    assert waiting(plain_machine)[:5] == ["b0", "a2", "b1", "a3", "a4"]
    line.withdraw(plain_machine, "a0")
    assert plain_machine.store.find("b0").shares
    line.withdraw(plain_machine, "a1")
    assert plain_machine.store.find("a2").shares
    line.withdraw(plain_machine, "a2")
    assert plain_machine.store.find("b1").shares


def test_a_turn_is_remembered_after_its_job_has_ended(plain_machine, join):
    join("a0", "ann")
    join("x", "ann")
    join("a1", "ann", since=1.0)
    join("b0", "bob", since=2.0)
    line.withdraw(plain_machine, "a0")
    line.withdraw(plain_machine, "x")
    assert {job.id for job in plain_machine.store.jobs() if job.shares} == {"b0", "a1"}


def test_a_waiter_polls_the_same_order(plain_machine, join):
    for at in range(4):
        join(f"a{at}", "ann")
    join("b0", "bob")
    jobs = {job.id: job for job in plain_machine.store.jobs()}
    places = line.places(list(jobs.values()), plain_machine.store.turns())
    assert places == {"b0": 1, "a2": 2, "a3": 3}
    for id, place in places.items():
        before, first = plain_machine.store.ahead_of(jobs[id])
        assert (before + 1, first.id) == (place, "b0")


def test_priority_is_among_one_s_own(plain_machine, join):
    for at in range(4):
        join(f"a{at}", "ann")
    join("b0", "bob")
    join("urgent", "ann", priority=1000)
    assert waiting(plain_machine) == ["b0", "urgent", "a2", "a3"]


@needs_root
def test_users_on_one_machine_take_turns(shared):
    machine, other = shared
    first = machine.holder("16Gi", "ready", "hold", options=["--name", "first"])
    assert first.stdout.readline() == "ready\n"
    mine = [
        machine.holder("16Gi", "ready", "hold", options=["--name", name, *options])
        for name, options in (("mine-1", ()), ("mine-2", ("--priority", "1")))
    ]
    for process in mine:
        assert "in line" in process.stderr.readline()
    theirs = other.start("run", "--gpu-memory", "16Gi", "--name", "theirs", "--", "true")
    assert "1st in line" in theirs.stderr.readline()
    assert [each["name"] for each in machine.listing("ps")["line"]] == ["theirs", "mine-2", "mine-1"]
    first.stdin.close()
    assert theirs.wait(20) == 0
    assert mine[1].stdout.readline() == "ready\n"
    assert mine[0].poll() is None


def capped(machine, **caps):
    object.__setattr__(machine, "caps", Caps(**caps, exempt=frozenset({"root"})))


def test_a_user_at_the_cap_waits_and_is_told_why(plain_machine, join):
    capped(plain_machine, running=1)
    assert join("a0", "ann").job.shares
    late = join("a1", "ann")
    assert str(late.refusal) == "ann has 1 running, one user may have 1 at a time"
    assert join("b0", "bob").job.shares
    told = to_json(plain_machine, snapshot(plain_machine))["line"]
    assert told[0]["reason"] == str(late.refusal) or "whole GPU" in told[0]["reason"]
    line.withdraw(plain_machine, "a0")
    assert plain_machine.store.find("a1").shares


def test_more_than_a_user_may_ever_have_is_bad_input(plain_machine, join):
    capped(plain_machine, memory=8 * GIB)
    with pytest.raises(BadInput, match="16Gi asked in all, one user may have 8Gi at a time"):
        join("a0", "ann")
    assert join("r0", "root").job.shares


def test_a_full_line_of_one_user(plain_machine, join):
    capped(plain_machine, waiting=2)
    for at in range(4):
        join(f"a{at}", "ann")
    with pytest.raises(NoRoom, match="ann has 2 in line already"):
        join("a4", "ann")
    assert join("b0", "bob").place == 1
    assert {job.id for job in plain_machine.store.jobs()} == {"a0", "a1", "a2", "a3", "b0"}


def test_caps_are_root_s(tmp_path):
    file = tmp_path / "machine.toml"
    assert load_caps(file) == Caps()
    file.write_text('[each_user]\nrunning = 2\nmemory = "24Gi"\n')
    file.chmod(0o644)
    assert load_caps(file, os.getuid()) == Caps(2, 24 * GIB, None, frozenset({"root"}))
    with pytest.raises(BadInput, match="must belong to root"):
        load_caps(file, os.getuid() + 1)
    file.chmod(0o666)
    with pytest.raises(BadInput, match="must belong to root"):
        load_caps(file, os.getuid())


@pytest.mark.parametrize(
    "text",
    [
        "running = 2",
        "[each_user]\nruning = 2",
        "[each_user]\nrunning = -1",
        "[each",
        '[each_user]\nmemory = "40"',
    ],
)
def test_mistakes_in_them_are_named(tmp_path, text):
    file = tmp_path / "machine.toml"
    file.write_text(text)
    file.chmod(0o644)
    with pytest.raises(BadInput, match="settings"):
        load_caps(file, os.getuid())


@needs_root
def test_a_cap_holds_for_the_commands_of_a_user(shared, tmp_path):
    machine, other = shared
    etc = tmp_path / "etc"
    subprocess.run(["cp", "-a", "/etc", etc], check=False)
    (etc / "cotenant").mkdir(exist_ok=True)
    (etc / "cotenant" / "machine.toml").write_text('[each_user]\nmemory = "4Gi"\n')
    with_caps = ["unshare", "-m", "sh", "-c", f'mount --bind {etc} /etc && exec "$@"', "sh"]

    def call(words):
        line = [*with_caps, *words]
        return subprocess.run(line, env=machine.environ, capture_output=True, text=True, check=False)

    run = ["run", "--no-wait", "--gpu-memory"]
    refused = call(other.line(*run, "5Gi", "--", "true"))
    assert refused.returncode == 2
    assert "5Gi asked in all, one user may have 4Gi at a time" in refused.stderr
    assert call(other.line(*run, "4Gi", "--", "true")).returncode == 0
    assert call(machine.line(*run, "5Gi", "--", "true")).returncode == 0


def test_resize_does_not_pass_a_cap(plain_machine, make_job, monkeypatch):
    capped(plain_machine, memory=8 * GIB)
    for id, user in (("a0", "ann"), ("a1", "ann"), ("b0", "bob")):
        job = make_job(id, 3 * GIB, user=user, slot=plain_machine.home.slots / id)
        slot_folder.make(plain_machine, line.join(plain_machine, job, wait=False, rename=False).job)
    monkeypatch.setattr("os.geteuid", lambda: (plain_machine.home.slots / "a0").stat().st_uid or 4711)
    monkeypatch.setattr("cotenant.local.ownership.owner", lambda job: None)
    with pytest.raises(NoRoom, match="ann would have 9Gi in all, one user may have 8Gi at a time"):
        resize(plain_machine, "a0", Memory(bytes=6 * GIB))
    assert resize(plain_machine, "a0", Memory(bytes=5 * GIB)).after.grant.memory == 5 * GIB
    assert resize(plain_machine, "a1", Memory(bytes=1 * GIB)).after.grant.memory == GIB
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert resize(plain_machine, "a0", Memory(bytes=9 * GIB)).after.grant.memory == 9 * GIB
