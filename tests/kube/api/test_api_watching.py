"""A watcher on a real API server that is killed, stopped and made to forget, while a second one goes on changing the
cluster: nothing is lost and nothing told twice.
"""

import asyncio
import contextlib
import signal
import time
from random import Random

import pytest

from cotenant.kube.api.auth import kubeconfig
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.connection import ConnectionSettings
from cotenant.kube.api.errors import KubeError
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.watcher import Watcher, WatchSettings

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(240)]
IMPATIENT = WatchSettings(first_pause=0.05, longest_pause=0.5, silence=2.0)


def pod(name):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "m", "image": "i"}]}}


class Told:
    """What a consumer was told, in short: kind, name, uid, resourceVersion."""

    def __init__(self):
        self.changes = []
        self.state = {}
        self.going = set()

    def __call__(self, change):
        meta = change.object.metadata
        if meta.deletion_timestamp is not None and change.kind == "modified":
            self.going.add(len(self.changes))
        self.changes.append((change.kind, meta.name, meta.uid, meta.resource_version))
        if change.kind == "added":
            assert meta.uid not in self.state, "added twice"
        else:
            assert meta.uid in self.state, f"{change.kind} before it was added"
        if change.kind == "deleted":
            del self.state[meta.uid]
        else:
            assert self.state.get(meta.uid) != meta.resource_version, "the same state told twice"
            self.state[meta.uid] = meta.resource_version

    def plain(self):
        """Without the states that only say that a deletion was asked for: a relist may jump over them."""
        return [change for number, change in enumerate(self.changes) if number not in self.going]

    def short(self):
        return [(kind, name) for kind, name, _, _ in self.plain()]


@contextlib.asynccontextmanager
async def watching(control_plane, url, namespace, settings=IMPATIENT):
    path = control_plane.kubeconfig(url)
    async with Client(kubeconfig.find({}, path=path), ConnectionSettings(connect=1.0)) as client:
        watcher, told = Watcher(client, PODS, Selection(namespace), settings), Told()
        watcher.store.subscribe(told)
        task = asyncio.create_task(watcher.run())
        await watcher.wait_until_synced(10)
        try:
            yield watcher, told
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled(), task.exception()


async def until(condition, seconds=30.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        await asyncio.sleep(0.01)


async def change(client, namespace, name, value):
    await client.merge_patch(PODS, name, {"metadata": {"annotations": {"v": value}}}, namespace)


async def test_changes_arrive_at_once_and_in_order(control_plane, first, client, namespace):
    await client.create(PODS, pod("before"), namespace)
    async with watching(control_plane, first[1], namespace) as (watcher, told):
        assert told.short() == [("added", "before")]
        began = time.monotonic()
        await client.create(PODS, pod("a"), namespace)
        await change(client, namespace, "a", "1")
        await client.delete(PODS, "a", namespace, grace_seconds=0)
        await client.create(PODS, pod("a"), namespace)
        await until(lambda: len(told.plain()) == 5)
        assert time.monotonic() - began < 5
        assert told.short()[1:] == [("added", "a"), ("modified", "a"), ("deleted", "a"), ("added", "a")]
        assert told.plain()[1][2] == told.plain()[3][2] != told.plain()[4][2]
        assert watcher.store.named("a", namespace).metadata.uid == told.plain()[4][2]
        assert watcher.lists == 1


async def test_killed_in_the_middle_of_a_watch(control_plane, first, hurt, other, namespace):
    for name in ("stays", "changes", "goes", "returns"):
        await other.create(PODS, pod(name), namespace)
    async with watching(control_plane, first[1], namespace) as (watcher, told):
        assert sorted(told.short()) == [("added", name) for name in ("changes", "goes", "returns", "stays")]
        told.changes.clear()
        assert not told.going
        hurt.kill()
        await change(other, namespace, "changes", "1")
        await other.delete(PODS, "goes", namespace, grace_seconds=0)
        await other.delete(PODS, "returns", namespace, grace_seconds=0)
        await other.create(PODS, pod("returns"), namespace)
        await other.create(PODS, pod("comes"), namespace)
        await until(lambda: watcher.trouble is not None)
        hurt.start()
        await until(lambda: len(told.plain()) >= 5, 60)
        await asyncio.sleep(1)
        assert sorted(told.short()) == [
            ("added", "comes"),
            ("added", "returns"),
            ("deleted", "goes"),
            ("deleted", "returns"),
            ("modified", "changes"),
        ]
        assert told.short().index(("deleted", "returns")) < told.short().index(("added", "returns"))
        await change(other, namespace, "stays", "1")
        await until(lambda: told.short()[-1] == ("modified", "stays"))
        assert len(told.plain()) == 6


async def test_a_server_that_forgot_is_listed_anew_and_the_difference_told(
    control_plane, first, hurt, other, namespace
):
    await other.create(PODS, pod("goes"), namespace)
    await other.create(PODS, pod("stays"), namespace)
    async with watching(control_plane, first[1], namespace) as (watcher, told):
        hurt.kill()
        await other.delete(PODS, "goes", namespace, grace_seconds=0)
        control_plane.compact()
        hurt.start()
        await until(lambda: ("deleted", "goes") in told.short(), 60)
        assert watcher.lists == 2  # it was told 410, and not merely disconnected
        await change(other, namespace, "stays", "1")
        await until(lambda: told.short()[-1] == ("modified", "stays"))
        assert sorted(told.short()[:2]) == [("added", "goes"), ("added", "stays")]
        assert told.short()[2:] == [("deleted", "goes"), ("modified", "stays")]


async def test_a_short_stall_is_waited_for(control_plane, first, hurt, other, namespace):
    settings = WatchSettings(silence=30.0)
    async with watching(control_plane, first[1], namespace, settings) as (watcher, told):
        hurt.signal(signal.SIGSTOP)
        await other.create(PODS, pod("a"), namespace)
        await other.delete(PODS, "a", namespace, grace_seconds=0)
        await asyncio.sleep(2)
        assert told.short() == []
        assert watcher.trouble is None
        hurt.signal(signal.SIGCONT)
        await until(lambda: len(told.plain()) == 2)
        assert told.short() == [("added", "a"), ("deleted", "a")]
        assert watcher.lists == 1


async def test_a_long_stall_is_noticed_and_survived(control_plane, first, hurt, other, namespace):
    await other.create(PODS, pod("goes"), namespace)
    async with watching(control_plane, first[1], namespace) as (watcher, told):
        hurt.signal(signal.SIGSTOP)
        await other.delete(PODS, "goes", namespace, grace_seconds=0)
        await until(lambda: watcher.trouble is not None, 10)
        await asyncio.sleep(3)  # several tries meet a server that takes connections and says nothing
        hurt.signal(signal.SIGCONT)
        await until(lambda: told.short() == [("added", "goes"), ("deleted", "goes")])
        await other.create(PODS, pod("comes"), namespace)
        await until(lambda: told.short()[-1] == ("added", "comes"))
        assert len(told.plain()) == 3


async def audit(client, namespace, version, history):
    """Everything that happened, from the server that is never hurt."""
    while True:
        with contextlib.suppress(KubeError):
            async for event in client.watch(PODS, Selection(namespace), resource_version=version):
                version = event.resource_version
                if event.object is not None:
                    history.append(
                        (event.kind, event.object.metadata.uid, event.object.metadata.resource_version)
                    )


async def churn(client, namespace, random, ends):
    """Few names, so that each is deleted and made anew many times."""
    names = [f"p{n}" for n in range(12)]
    there = set()
    while time.monotonic() < ends:
        name = random.choice(names)
        if name not in there:
            await client.create(PODS, pod(name), namespace)
            there.add(name)
        elif random.random() < 0.5:
            await change(client, namespace, name, str(random.random()))
        else:
            await client.delete(PODS, name, namespace, grace_seconds=0)
            there.discard(name)
        await asyncio.sleep(0.02)


async def test_each_change_is_told_once_while_the_server_is_killed_and_stopped(
    control_plane, first, hurt, other, namespace
):
    random, seconds = Random(7), 30
    version = (await other.list(PODS, Selection(namespace))).resource_version
    history, turns = [], 0
    auditing = asyncio.create_task(audit(other, namespace, version, history))
    async with watching(control_plane, first[1], namespace) as (watcher, told):
        ends = time.monotonic() + seconds
        changing = asyncio.create_task(churn(other, namespace, Random(8), ends))
        while time.monotonic() < ends:
            await asyncio.sleep(random.random() * 3)
            if turns % 2 == 0:
                hurt.kill()
                await asyncio.sleep(random.random() * 2)
                if turns % 4 == 0:
                    control_plane.compact()
                hurt.start()
                await asyncio.sleep(3)
            else:
                hurt.signal(signal.SIGSTOP)
                await asyncio.sleep(random.random() * 4)
                hurt.signal(signal.SIGCONT)
            turns += 1
        await changing
        truth = {
            p.metadata.uid: p.metadata.resource_version
            for p in (await other.list(PODS, Selection(namespace))).items
        }
        await until(lambda: told.state == truth, 60)
        await until(lambda: set(truth.values()) <= {version for _, _, version in history})
        assert {p.metadata.uid: p.metadata.resource_version for p in watcher.store} == truth
    auditing.cancel()
    assert turns >= 2
    assert watcher.lists >= 2
    states = {(uid, version) for kind, uid, version in history if kind != "DELETED"}
    deleted = {uid for kind, uid, _ in history if kind == "DELETED"}
    told_states = [(uid, version) for kind, _, uid, version in told.changes if kind != "deleted"]
    assert len(told_states) == len(set(told_states)), "a state was told twice"
    assert set(told_states) <= states, "something was told that never was"
    told_deleted = [uid for kind, _, uid, _ in told.changes if kind == "deleted"]
    assert len(told_deleted) == len(set(told_deleted))
    assert set(told_deleted) <= deleted
    seen = {uid for uid, _ in told_states}
    assert seen & deleted == set(told_deleted), "a deletion was lost"
    for uid in seen:
        versions = [int(version) for told_uid, version in told_states if told_uid == uid]
        assert versions == sorted(versions)
    print(f"{len(history)} changes, {len(told.changes)} told, {turns} faults, {watcher.lists} lists")
