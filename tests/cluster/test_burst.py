"""A burst of messages on real queues: replicas come in time, turn once, and go when all is done.

Four workloads at once: Redis (a list, a stream) and RabbitMQ, targets of 5 s and 3 s, from zero and from one replica.
Their pods are placed and granted as any others, and each really takes messages (cotenant/workers.py). Judged by the API
and the queues alone (cotenant/backlog.py). The second time the server that leads is killed in the middle.
"""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from cluster.cotenant.backlog import SAMPLE, Judge, Seen
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import container
from cluster.cotenant.queues import Queue, RabbitQueue, RedisList, RedisStream
from cluster.cotenant.workers import Workers, nodes
from cluster.testbed import hollow
from cluster.testbed.api import Api, Object, Refused
from signals.servers import RabbitMQ, Redis

from cotenant.kube.scaler.definition import definition

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
MESSAGES = 200
SECONDS = 0.8
"""What one message takes."""
POLL = 5.0
"""Seconds between two decisions: the default of `scaler.poll`."""
COLD_START = 5.0
THRESHOLD = 15.0
MOST = 30
"""Replicas of one workload."""
LONGEST = 150.0
"""Seconds until a burst must be over: replicas are back at their minimum."""
SECRET = "rabbitmq"


@dataclass(frozen=True)
class Workload:
    name: str
    target: float
    minimum: int
    queue: Queue

    def bound(self, cold_start: float) -> float:
        """Returns the seconds after which the backlog must be under the target."""
        return cold_start + 2 * self.target + 2 * POLL


@dataclass
class Stage:
    api: Api
    namespace: str
    cotenant: Installation
    workloads: list[Workload]
    workers: Workers
    judge: Judge

    async def burst(self, number: int) -> float:
        """Puts the messages into all queues at once. Returns when."""
        begun = time.monotonic()
        names = [f"{number}-{each}" for each in range(MESSAGES)]
        await asyncio.gather(*(each.queue.put(names) for each in self.workloads))
        return begun

    async def until(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not done():
            self.workers.check()
            if time.monotonic() > end:
                raise AssertionError(f"not {what} after {seconds:.0f} s: {self._state()}")
            await asyncio.sleep(0.1)

    def settled(self) -> bool:
        """Whether all have as many replicas as they begin with, and a scaler that reads their queue."""
        ready = {
            each["metadata"]["name"]
            for each in self.api.items(_scalers(self.namespace))
            for condition in each.get("status", {}).get("conditions", ())
            if condition["type"] == "Ready" and condition["status"] == "True"
        }
        seen = self.judge.seen
        return all(
            each.name in ready and [count for _, count in seen[each.name].ready[-1:]] == [each.minimum]
            for each in self.workloads
        )

    def at_minimum(self) -> bool:
        seen = self.judge.seen
        return all(
            [count for _, count in seen[each.name].wanted[-1:]] == [each.minimum] for each in self.workloads
        )

    def done(self, number: int) -> bool:
        return all(
            sum(message.startswith(f"{number}-") for message in self.workers.done[each.name]) == MESSAGES
            for each in self.workloads
        )

    def _state(self) -> str:
        told = {}
        for each in self.workloads:
            status = self.api.get(f"{_scalers(self.namespace)}/{each.name}").get("status", {})
            seen = self.judge.seen[each.name]
            told[each.name] = (status.get("message"), seen.wanted[-3:], seen.ready[-1:], seen.waiting[-1:])
        return str(told)


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    started: Installation = start_cotenant(servers=2, settings={"scaler": {"poll": f"{POLL:.0f}s"}})
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gpuscalers.cotenant.dev"},
        "spec": definition(),
    }
    try:
        started.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    except Refused as refused:
        if refused.code != 409:
            raise
    started.api.until(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpuscalers.cotenant.dev",
        lambda seen: any(
            each["type"] == "Established" and each["status"] == "True"
            for each in seen.get("status", {}).get("conditions") or ()
        ),
    )
    return started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(cotenant: Installation, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """All four workloads at their minimum, as their scalers have seen."""
    api = cotenant.api
    folder: Path = tmp_path_factory.mktemp("queues")
    redis, rabbitmq = Redis(folder / "redis"), RabbitMQ(folder / "rabbitmq")
    redis.start()
    rabbitmq.start()
    stream = RedisStream(redis.url, "stream")
    await stream.declare()
    rabbits = [RabbitQueue(rabbitmq.amqp, rabbitmq.management, f"jobs-{each}", SECRET) for each in (1, 2)]
    for each in rabbits:
        await each.open()
    workloads = [
        Workload("list-5s-from-0", 5.0, 0, RedisList(redis.url, "jobs")),
        Workload("stream-3s-from-1", 3.0, 1, stream),
        Workload("rabbitmq-5s-from-1", 5.0, 1, rabbits[0]),
        Workload("rabbitmq-3s-from-0", 3.0, 0, rabbits[1]),
    ]
    queues = {each.name: each.queue for each in workloads}
    for node in nodes(4, 8):
        api.create(hollow.NODES, node)
    created = api.create("/api/v1/namespaces", {"metadata": {"generateName": "burst-"}})
    namespace: str = created["metadata"]["name"]
    api.until(f"/api/v1/namespaces/{namespace}/serviceaccounts/default", lambda _: True)
    password = base64.b64encode(b"guest").decode()
    secret = {"metadata": {"name": SECRET}, "data": {"password": password}}
    api.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    try:
        async with (
            Workers(api, namespace, queues, COLD_START, SECONDS) as workers,
            Judge(api, namespace, queues) as judge,
        ):
            for each in workloads:
                _create(api, namespace, each)
            made = Stage(api, namespace, cotenant, workloads, workers, judge)
            await made.until(made.settled, "served with the replicas that it begins with", 90)
            await asyncio.sleep(2 * POLL)
            yield made
            for each in workloads:
                api.delete(f"{_scalers(namespace)}/{each.name}")
                api.delete(f"{_deployments(namespace)}/{each.name}")
            await made.until(lambda: not any(workers.bound.values()), "gone", 60)
    finally:
        for rabbit in rabbits:
            await rabbit.close()
        for server in (redis, rabbitmq):
            server.stop()
        api.delete(f"/api/v1/namespaces/{namespace}")
        hollow.clear(api)


def _scalers(namespace: str) -> str:
    return f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}/gpuscalers"


def _deployments(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


def _create(api: Api, namespace: str, workload: Workload) -> None:
    labels = {"app": workload.name}
    pod = {
        "containers": [container(memory="4Gi")],
        "terminationGracePeriodSeconds": 30,
    }
    deployment: Object = {
        "metadata": {"name": workload.name},
        "spec": {
            "replicas": workload.minimum,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    api.create(_deployments(namespace), deployment)
    scaler: Object = {
        "apiVersion": "cotenant.dev/v1alpha1",
        "kind": "GpuScaler",
        "metadata": {"name": workload.name},
        "spec": {
            "target": {"name": workload.name},
            "replicas": {"min": workload.minimum, "max": MOST},
            "backlog": {
                "target": f"{workload.target:.0f}s",
                "queue": workload.queue.specification,
                "processingTime": {"fixed": f"{1000 * SECONDS:.0f}ms"},
            },
            "scaleDownThreshold": f"{THRESHOLD:.0f}s",
        },
    }
    api.create(_scalers(namespace), scaler)


async def judge(stage: Stage, number: int, begun: float, show: Callable[[str], None]) -> None:
    """Waits until the burst is over, shows what was seen, and compares it with what is promised."""
    await stage.until(lambda: stage.done(number), "all messages done", LONGEST)
    finished = time.monotonic() - begun
    await stage.until(stage.at_minimum, "back at the minimum", LONGEST)
    released = time.monotonic() - begun
    show(f"burst {number}: all done after {finished:.1f} s, all at their minimum after {released:.1f} s")
    seen = {each.name: stage.judge.seen[each.name].since(begun) for each in stage.workloads}
    # As long as starts really took: where the machine is busy, it takes time to report that a pod is ready.
    starts = {
        each.name: max(took for at, took in stage.workers.starts[each.name] if at >= begun)
        for each in stage.workloads
    }
    for each in stage.workloads:
        show(_figures(each, seen[each.name], starts[each.name], begun))
    for each in stage.workloads:
        own = seen[each.name]
        # It is looked at every so often: what is over may be seen one look later.
        assert own.under(each.target, SECONDS, begun) <= each.bound(starts[each.name]) + SAMPLE, each.name
        assert own.turns == 1, (each.name, own.wanted)
        done = stage.workers.done[each.name]
        assert all(done[f"{number}-{message}"] == 1 for message in range(MESSAGES)), each.name
        assert await each.queue.waiting() == 0, each.name


def _figures(workload: Workload, seen: Seen, start: float, begun: float) -> str:
    under, bound = seen.under(workload.target, SECONDS, begun), workload.bound(start)
    steps = ", ".join(f"{count} at {at - begun:.1f} s" for at, count in seen.wanted)
    return (
        f"  {workload.name}: a start took at most {start:.1f} s, under {workload.target:.0f} s after {under:.1f} s "
        f"(bound {bound:.1f} s), {seen.most} replicas at most, {seen.turns} turn; wanted {steps}"
    )


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", end="", flush=True)

    return say


async def test_backlogs_are_under_their_targets_in_time_and_replicas_turn_once(
    stage: Stage, show: Callable[[str], None]
):
    await judge(stage, 1, await stage.burst(1), show)


async def test_the_same_when_the_leader_is_killed_in_the_middle(stage: Stage, show: Callable[[str], None]):
    """Once all replicas that were asked for have their card: who has none would wait for the next leader."""
    begun = await stage.burst(2)
    leader = stage.cotenant.leader()
    assert leader is not None

    def served() -> bool:
        wanted = {each.name: stage.judge.seen[each.name].wanted[-1][1] for each in stage.workloads}
        return all(
            each.minimum < wanted[each.name] <= len(stage.workers.bound[each.name])
            for each in stage.workloads
        )

    await stage.until(served, "scaled up and bound", 60)
    leader.kill()
    show(f"burst 2: the leader is killed after {time.monotonic() - begun:.1f} s")
    leader.start()
    await judge(stage, 2, begun, show)
