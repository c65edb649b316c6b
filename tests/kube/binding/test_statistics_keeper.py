"""The statistics are written rarely, never at rest, and by a server that is stopped in order."""

import asyncio
from random import Random

import pytest
from kube.virtual_time import run

from cotenant.core.seen_pods import pod_kinds
from cotenant.kube.api.election import NotLeading
from cotenant.kube.api.errors import Unreachable
from cotenant.kube.binding.statistics_keeper import LATEST, LOOK, MANY, StatisticsKeeper, is_due
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.pod_statistics import EndedPods, PodStatistics

NEVER, HOUR = 0.0, 3600.0


class Kept:
    """A keeper at work, and what it wrote."""

    def __init__(self, ended=None):
        self.statistics = PodStatistics(ClusterLedger().learned)
        self.statistics.begin(ended or EndedPods(since=1.8e9), {})
        self.writes, self.fails, self.leads = [], 0, True
        loop = asyncio.get_running_loop()
        keeper = StatisticsKeeper(
            self.statistics,
            self.write,
            self.must_lead,
            clock=loop.time,
            wall=lambda: 1.9e9,
            random=Random(1),
        )
        self.task = asyncio.create_task(keeper.run())

    async def write(self, ended):
        if self.fails:
            self.fails -= 1
            raise Unreachable("not now")
        self.writes.append(ended.pods)

    def must_lead(self):
        if not self.leads:
            raise NotLeading("another one does")

    def end(self, count):
        for _ in range(count):
            uid = f"pod-{self.statistics.pods}"
            self.statistics.start(uid, pod_kinds((), 1, 1))
            self.statistics.end(uid)

    async def stop(self):
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task


@pytest.mark.parametrize(
    ("written", "ended", "seconds", "due"),
    [
        (0, 0, HOUR, False),
        (0, 1, NEVER, True),
        (100, 124, NEVER, False),
        (100, 125, NEVER, True),
        (100, 101, LATEST, True),
        (10**6, 10**6 + MANY - 1, NEVER, False),
        (10**6, 10**6 + MANY, NEVER, True),
        (100, 100, HOUR, False),
    ],
)
def test_when_a_write_is_due(written, ended, seconds, due):
    assert is_due(written, ended, seconds) == due


def test_the_first_leader_notes_since_when_it_counts_and_then_rests():
    async def main():
        kept = Kept(EndedPods())
        await asyncio.sleep(24 * HOUR)
        assert kept.writes == [0]
        assert kept.statistics.ended.since == 1.9e9
        await kept.stop()
        assert kept.writes == [0]

    run(main())


def test_another_leader_with_nothing_new_writes_nothing():
    async def main():
        kept = Kept(EndedPods(pods=100, since=1.8e9))
        await asyncio.sleep(24 * HOUR)
        await kept.stop()
        assert kept.writes == []
        assert kept.statistics.ended.since == 1.8e9

    run(main())


def test_ten_thousand_pods_are_a_few_dozen_writes():
    async def main():
        kept = Kept()
        for _ in range(10_000):
            kept.end(1)
            await asyncio.sleep(1)
        assert kept.writes[0] <= LOOK + 1, "the first are not waited with"
        assert len(kept.writes) < 60
        assert all(
            later - before <= MANY + LOOK for before, later in zip(kept.writes, kept.writes[1:], strict=False)
        )
        await kept.stop()
        assert kept.writes[-1] == 10_000

    run(main())


def test_a_few_more_are_written_after_some_minutes():
    async def main():
        kept = Kept(EndedPods(pods=1000, since=1.8e9))
        kept.end(1)
        await asyncio.sleep(LATEST - LOOK)
        assert kept.writes == []
        await asyncio.sleep(2 * LOOK)
        assert kept.writes == [1001]
        await kept.stop()

    run(main())


def test_what_cannot_be_written_is_tried_again_less_and_less_often():
    async def main():
        kept = Kept()
        kept.fails = 3
        kept.end(5)
        await asyncio.sleep(HOUR)
        assert kept.writes == [5]
        await kept.stop()

    run(main())


def test_a_server_that_was_deposed_writes_nothing_at_its_end():
    async def main():
        kept = Kept(EndedPods(pods=1000, since=1.8e9))
        await asyncio.sleep(1)
        kept.end(1)
        kept.leads = False
        await kept.stop()
        assert kept.writes == []

    run(main())


def test_an_api_server_that_hangs_does_not_keep_a_server_from_ending():
    async def main():
        kept = Kept(EndedPods(pods=1000, since=1.8e9))
        await asyncio.sleep(1)
        kept.end(1)

        async def hang(_):
            await asyncio.Event().wait()

        kept.write = hang
        began = asyncio.get_running_loop().time()
        kept.task.cancel()
        await asyncio.wait([kept.task])
        assert asyncio.get_running_loop().time() - began < 3

    run(main())
