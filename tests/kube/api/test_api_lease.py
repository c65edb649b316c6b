"""Candidates as processes on a real API server; they are killed, stopped and woken. CLOCK_MONOTONIC is the same for all
processes of a machine, so their logs can be laid side by side.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kube.apiserver import end_with_the_tests

from cotenant.kube.api.resources import LEASES

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180)]
PROGRAM = Path(__file__).parents[1] / "candidate.py"


class Candidate:
    def __init__(self, config, namespace, log):
        self.log = log
        command = [sys.executable, PROGRAM, config, namespace, log]
        self.process = subprocess.Popen(command, preexec_fn=end_with_the_tests)

    def lines(self):
        """(moment, whether it led, term); a line that is being written is left out."""
        with contextlib.suppress(FileNotFoundError):
            whole = self.log.read_text().split("\n")[:-1]
            return [(float(a), b == "1", int(c)) for a, b, c in (line.split() for line in whole)]
        return []

    def leads(self):
        lines = self.lines()
        return bool(lines) and lines[-1][1] and time.monotonic() - lines[-1][0] < 0.5

    def signal(self, number):
        os.kill(self.process.pid, number)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


@pytest.fixture
def candidates(control_plane, first, namespace, tmp_path):
    """Starts one more at each call."""
    made = []
    config = control_plane.kubeconfig(first[1])

    def start():
        made.append(Candidate(config, namespace, tmp_path / f"log{len(made)}"))
        return made[-1]

    yield start
    for each in made:
        each.end()
    assert_never_two(made)


def assert_never_two(candidates):
    """Each time of believing, from its first moment to its last, of one process lies apart from all of the others."""
    spans = []
    for number, candidate in enumerate(candidates):
        for leads, lines in itertools.groupby(candidate.lines(), key=lambda line: (line[1], line[2])):
            moments = [line[0] for line in lines]
            if leads[0]:
                spans.append((moments[0], moments[-1], number, leads[1]))
    spans.sort()
    for (_, end, one, _), (begin, _, two, _) in itertools.pairwise(spans):
        assert begin > end, f"{one} and {two} both led at {begin}"
    terms = [term for _, _, _, term in spans]
    assert terms == sorted(terms)


async def until(condition, seconds=30.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        await asyncio.sleep(0.02)
    return time.monotonic()


async def unheld(client, namespace):
    """As an installation comes with it."""
    await client.create(LEASES, {"metadata": {"name": "server"}}, namespace)


async def test_a_killed_leader_is_followed_after_its_lease(client, namespace, candidates):
    await unheld(client, namespace)
    one = candidates()
    await until(one.leads)
    two = candidates()
    await until(lambda: two.lines())
    await asyncio.sleep(2)
    assert not two.leads()
    killed = time.monotonic()
    one.end()
    assert 2.5 < await until(two.leads) - killed < 8
    lease = await client.get(LEASES, "server", namespace)
    assert lease.spec.lease_transitions == 2
    assert lease.spec.renew_time is not None


async def test_a_leader_that_ends_hands_over_at_once(client, namespace, candidates):
    await unheld(client, namespace)
    one = candidates()
    await until(one.leads)
    two = candidates()
    await until(lambda: two.lines())
    await asyncio.sleep(1)
    asked = time.monotonic()
    one.signal(signal.SIGTERM)
    assert await until(two.leads) - asked < 2
    assert one.process.wait(5) == 0


async def test_a_stopped_leader_knows_that_it_lost_before_it_acts(client, namespace, candidates):
    await unheld(client, namespace)
    one = candidates()
    await until(one.leads)
    two = candidates()
    await until(lambda: two.lines())
    one.signal(signal.SIGSTOP)
    stopped = time.monotonic()
    await until(two.leads)
    await asyncio.sleep(1)
    one.signal(signal.SIGCONT)
    await until(lambda: one.lines()[-1][0] > stopped + 3)
    await asyncio.sleep(2)
    woken = [line for line in one.lines() if line[0] > stopped + 1]
    assert woken
    assert not any(leads for _, leads, _ in woken)
    assert two.leads()


async def test_stopped_and_woken_in_turns_while_the_server_is_killed(client, namespace, candidates, hurt):
    await unheld(client, namespace)
    all = [candidates() for _ in range(3)]
    for turn in range(3):
        await until(lambda: any(each.leads() for each in all))
        leader = next((each for each in all if each.leads()), all[0])
        leader.signal(signal.SIGSTOP)
        await until(lambda leader=leader: any(each.leads() for each in all if each is not leader))
        if turn == 1:
            hurt.kill()
            await until(lambda: not any(each.leads() for each in all))
            hurt.start()
        leader.signal(signal.SIGCONT)
    await until(lambda: any(each.leads() for each in all), 40)


async def test_the_lease_is_made_if_it_is_not_there(client, namespace, candidates):
    began = time.monotonic()
    one = candidates()
    assert await until(one.leads) - began > 4
    assert (await client.get(LEASES, "server", namespace)).spec.lease_duration_seconds == 4
