"""A survey reads real NVML calls of the stand-in, and goes on when a driver hangs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time

import pytest

from cotenant.core.gpu import GPU
from cotenant.dialects.pod_grant import read_grant
from cotenant.hardware import libraries
from cotenant.hardware.nvml import CardProcess, CardReading, Fault, NoDriver, Readings
from cotenant.hardware.standin import driver as standin
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.process_owners import Owned
from cotenant.kube.agent.cards.survey import STEP, Survey

GIB = 2**30


def readings(*problems: str | None) -> Readings:
    return Readings(
        tuple(
            CardReading(GPU(f"GPU-{at}", at, "T4", 16 * GIB, healthy=problem is None), 0, problem=problem)
            for at, problem in enumerate(problems)
        )
    )


class Driver:
    """Gives its answers in order, and the last one again and again; an Event is waited for first."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.heard: list[Fault] = []

    def read(self) -> Readings:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, threading.Event):
            answer.wait()
            return readings(None, None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None: ...

    def faults(self, timeout: float):
        yield from self.heard
        self.heard = []
        time.sleep(min(timeout, 0.02))


def survey(driver: Driver, grants=dict, **more) -> Survey:
    fields = {"interval": 0.6, "timeout": 5.0, "recovery": 600.0, "counted": dict, **more}
    return Survey(cards=driver, listener=driver, grants=grants, **fields)


def problems(sight) -> list[str | None]:
    return [card.problem for card in sight.cards]


@pytest.mark.asyncio
async def test_a_driver_that_hangs_makes_the_cards_sick_and_nobody_waits_for_it():
    hang = threading.Event()
    driver = Driver(readings(None, None), hang, readings(None, None))
    looking = survey(driver, timeout=0.05)
    assert problems(await looking.look()) == [None, None]
    for _ in range(2):
        told = problems(await looking.look())
        assert told == ["the driver does not answer: a look took more than 0.05s"] * 2
    assert driver.asked == 2, "no second thread waits behind the first"
    assert looking.trouble is not None
    hang.set()
    async with asyncio.timeout(5):
        while problems(await looking.look()) != [None, None]:
            pass
    assert looking.trouble is None


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [NoDriver("the driver is gone"), RuntimeError("what is this")])
async def test_a_driver_that_fails_makes_the_cards_sick(error):
    looking = survey(Driver(readings(None), error, readings(None)))
    await looking.look()
    (told,) = problems(await looking.look())
    assert str(error) in told
    assert problems(await looking.look()) == [None]


@pytest.mark.asyncio
async def test_what_is_seen_before_the_grants_are_known_says_so():
    known: list[dict | None] = [None]
    looking = survey(Driver(readings(None)), grants=lambda: known[0])
    assert not (await looking.look()).granted
    known[0] = {}
    assert (await looking.look()).granted


@pytest.mark.asyncio
async def test_a_fault_is_seen_at_once_and_every_look_is_told():
    driver = Driver(readings(None, None))
    seen = asyncio.Event()
    looking = survey(driver, interval=60.0, seen=seen.set)
    task = asyncio.create_task(looking.run())
    async with asyncio.timeout(10):
        await seen.wait()
        driver.heard = [Fault("GPU-1", 48)]
        while problems(looking.sight) != [None, "reported a fault (XID 48)"]:
            seen.clear()
            await seen.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.asyncio
async def test_a_gpu_s_time_is_added_up_by_container_where_the_driver_reports_it(monkeypatch):
    main, side = Owner("u", "main"), Owner("u", "side")
    owners = {1: main, 2: main, 3: side, 4: None}
    monkeypatch.setattr(
        "cotenant.kube.agent.cards.process_owners.ProcessOwners.of",
        lambda _, pids: Owned({pid: owners[pid] for pid in pids if pid in owners}, {}),
    )
    told = {"GPU-0": {1: 30, 2: 10, 3: 5, 4: 40, 5: 1}, "GPU-1": {}, "GPU-3": {1: 50}}
    looking = survey(
        Driver(readings(None, None, None, "lost"), NoDriver("gone")),
        busy=lambda uuids: {uuid: told[uuid] for uuid in uuids if uuid in told},
    )
    assert (await looking.look()).busy == {"GPU-0": {main: 40, side: 5}, "GPU-1": {}}
    assert (await looking.look()).busy == {}


GRANT = {
    "version": 1,
    "uid": "u",
    "slots": [{"container": "main", "shares": [{"uuid": "GPU-0", "memory": 4 * GIB}]}],
}


def held(*processes: tuple[int, int | None], used: int) -> Readings:
    gpu = GPU("GPU-0", 0, "T4", 16 * GIB)
    return Readings((CardReading(gpu, used, tuple(CardProcess(pid, size) for pid, size in processes)),))


@pytest.fixture
def owned(monkeypatch):
    """Process 1 is the pod's with the grant, 2 is no pod's."""
    owners = {1: Owner("u", "main"), 2: None}
    monkeypatch.setattr(
        "cotenant.kube.agent.cards.process_owners.ProcessOwners.of",
        lambda _, pids: Owned({pid: owners[pid] for pid in pids if pid in owners}, {}),
    )
    return {"u": read_grant(json.dumps(GRANT), "u")}


@pytest.mark.asyncio
async def test_what_no_grant_covers_is_told_in_steps(owned):
    driver = Driver(held((1, GIB), (2, 1), used=GIB + 1), held((1, 5 * GIB), used=5 * GIB))
    looking = survey(driver, grants=lambda: owned)
    assert (await looking.look()).outside == {"GPU-0": STEP}
    assert (await looking.look()).outside == {"GPU-0": GIB}


@pytest.mark.asyncio
async def test_memory_that_no_process_answers_for_is_told_when_two_looks_find_it(owned):
    calm, more = held((1, GIB), used=GIB), held((1, GIB), used=3 * GIB)
    looking = survey(Driver(calm, more, calm, more, more), grants=lambda: owned)
    told = [(await looking.look()).outside["GPU-0"] for _ in range(5)]
    assert told == [0, 0, 0, 0, 2 * GIB]


@pytest.mark.asyncio
async def test_where_the_driver_reports_no_figure_the_slots_of_the_pod_count(owned):
    driver = Driver(held((1, None), used=5 * GIB))
    looking = survey(driver, grants=lambda: owned, counted=lambda: {"GPU-0": {"u": 3 * GIB, "v": 9 * GIB}})
    assert (await looking.look()).outside == {"GPU-0": 2 * GIB}


SURVEY = """
import asyncio, json, sys
from pathlib import Path
from cotenant.hardware.nvml import Nvml
from cotenant.kube.agent.cards.survey import Survey

async def main():
    nvml = lambda: Nvml(Path(sys.argv[1]), {"COTENANT_STANDIN": sys.argv[2]})
    looking = Survey(cards=nvml(), listener=nvml(), grants=dict, counted=dict, interval=0.6, timeout=10, recovery=600,
                     seen=lambda: print(json.dumps([
                         [card.problem for card in looking.sight.cards],
                         [looking.sight.outside[card.gpu.uuid] for card in looking.sight.cards],
                     ]), flush=True))
    await looking.run()

asyncio.run(main())
"""


@pytest.fixture
def watched(tmp_path):
    """Simulated cards, a survey of them in a process of its own, and a way to wait for what it says."""
    path = tmp_path / "cards"
    standin.create(path, standin.parse_spec("2x16GiB"))
    surveyor = subprocess.Popen(
        [sys.executable, "-c", SURVEY, str(libraries.standin_nvml()), str(path)],
        stdout=subprocess.PIPE,
        text=True,
    )

    def until(done):
        for line in surveyor.stdout:
            if done(*json.loads(line)):
                return json.loads(line)
        raise AssertionError("the survey ended")

    until(lambda told, _: told == [None, None])
    yield standin.StandIn(path), path, until
    with surveyor:  # closes its pipe
        surveyor.kill()


def test_real_calls_tell_of_lost_cards_faults_and_strangers(watched):
    cards, path, until = watched
    first, second = (card.uuid for card in cards.cards())
    cards.fail(first)
    until(lambda told, _: told == ["does not answer: it may have fallen off the bus", None])
    cards.recover(first)
    until(lambda told, _: told == ["reported a fault (XID 79)", None])
    cards.post_xid(second, 95)
    until(lambda told, _: told == ["reported a fault (XID 79)", "reported a fault (XID 95)"])
    script = (
        "import ctypes, time\n"
        "cuda = ctypes.CDLL('libcuda.so.1'); made = ctypes.c_void_p(); assert cuda.cuInit(0) == 0\n"
        "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), 1) == 0\n"
        "time.sleep(60)"
    )
    stranger = subprocess.Popen([sys.executable, "-c", script], env=standin.environment(path, {}))
    until(lambda _, outside: outside == [0, 256 << 20])
    stranger.kill()
    stranger.wait()
    until(lambda _, outside: outside == [0, 0])
