"""Puts messages into real queues and takes them as workers do: a Redis list, a Redis stream, a RabbitMQ queue.

A worker takes one message at a time and acknowledges it when it is done. What it took waits no longer, and is not gone
either. Depths are asked of the servers in the moment, not of their statistics.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiormq
import redis.asyncio
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from cluster.testbed.api import Object

PATIENCE = 1.0
"""Seconds for which a worker waits for a message before it looks whether it should end."""
GROUP = "workers"


class Worker(Protocol):
    async def take(self) -> str | None:
        """Takes the next message; None if none came for a while."""

    async def acknowledge(self) -> None:
        """Tells the queue that the message which was taken last is done."""


class Queue(Protocol):
    name: str

    @property
    def specification(self) -> Object:
        """What stands below `queue:` of a GpuScaler."""

    async def put(self, messages: Sequence[str]) -> None:
        """Puts all of them at once."""

    async def waiting(self) -> int:
        """Counts the messages that no worker has taken."""

    def worker(self) -> AbstractAsyncContextManager[Worker]:
        """Connects one worker."""


@dataclass
class _ListWorker:
    client: Any
    queue: "RedisList"
    taken: str = ""

    async def take(self) -> str | None:
        found = await self.client.blmove(self.queue.name, self.queue.work, PATIENCE, "LEFT", "RIGHT")
        self.taken = found or ""
        return self.taken or None

    async def acknowledge(self) -> None:
        await self.client.lrem(self.queue.work, 1, self.taken)


@dataclass
class RedisList:
    """A list from which workers move what they work on into a second one."""

    url: str
    name: str

    @property
    def work(self) -> str:
        return f"{self.name}:work"

    @property
    def specification(self) -> Object:
        return {"redis": {"url": self.url, "list": self.name}, "inFlight": {"list": self.work}}

    async def put(self, messages: Sequence[str]) -> None:
        async with _redis(self.url) as client:
            await client.rpush(self.name, *messages)

    async def waiting(self) -> int:
        async with _redis(self.url) as client:
            return int(await client.llen(self.name))

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        async with _redis(self.url) as client:
            yield _ListWorker(client, self)


@dataclass
class _StreamWorker:
    client: Any
    queue: "RedisStream"
    consumer: str = field(default_factory=lambda: uuid.uuid4().hex)
    taken: str = ""

    async def take(self) -> str | None:
        found = await self.client.xreadgroup(
            GROUP, self.consumer, {self.queue.name: ">"}, count=1, block=int(1000 * PATIENCE)
        )
        if not found:
            return None
        ((_, ((self.taken, fields),)),) = found
        message: str = fields["message"]
        return message

    async def acknowledge(self) -> None:
        await self.client.xack(self.queue.name, GROUP, self.taken)


@dataclass
class RedisStream:
    """A stream whose group of workers acknowledges each entry."""

    url: str
    name: str

    @property
    def specification(self) -> Object:
        return {"redis": {"url": self.url, "stream": self.name, "group": GROUP}}

    async def declare(self) -> None:
        async with _redis(self.url) as client:
            await client.xgroup_create(self.name, GROUP, id="0", mkstream=True)

    async def put(self, messages: Sequence[str]) -> None:
        async with _redis(self.url) as client, client.pipeline(transaction=True) as pipe:
            for each in messages:
                pipe.xadd(self.name, {"message": each})
            await pipe.execute()

    async def waiting(self) -> int:
        async with _redis(self.url) as client:
            (group,) = await client.xinfo_groups(self.name)
            return int(group["lag"])

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        async with _redis(self.url) as client:
            yield _StreamWorker(client, self)


@dataclass
class _RabbitWorker:
    channel: AbstractChannel
    delivered: "asyncio.Queue[DeliveredMessage]"
    tag: int = 0

    async def take(self) -> str | None:
        try:
            async with asyncio.timeout(PATIENCE):
                message = await self.delivered.get()
        except TimeoutError:
            return None
        self.tag = message.delivery_tag or 0
        return message.body.decode()

    async def acknowledge(self) -> None:
        await self.channel.basic_ack(self.tag)


@dataclass
class RabbitQueue:
    """A queue that the scaler asks over the management API. Workers have a channel each and prefetch one message."""

    amqp: str
    management: str
    name: str
    secret: str
    """Name of the Secret with the password of user guest."""
    _connection: AbstractConnection | None = None
    _own: AbstractChannel | None = None

    @property
    def specification(self) -> Object:
        password = {"secret": {"name": self.secret, "key": "password"}}
        return {
            "rabbitmq": {
                "url": self.management,
                "queue": self.name,
                "username": "guest",
                "passwordFrom": password,
            }
        }

    async def open(self) -> None:
        self._connection = await aiormq.connect(self.amqp.replace("amqp://", "amqp://guest:guest@") + "/")
        self._own = await self._connection.channel()
        await self._own.queue_declare(self.name, durable=True)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def put(self, messages: Sequence[str]) -> None:
        assert self._own is not None
        for each in messages:
            await self._own.basic_publish(each.encode(), routing_key=self.name, wait=False)

    async def waiting(self) -> int:
        assert self._own is not None
        declared = await self._own.queue_declare(self.name, passive=True)
        return int(declared.message_count or 0)

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        """A message that was delivered and not begun goes back to the queue when the channel is closed."""
        assert self._connection is not None
        channel = await self._connection.channel()
        delivered: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
        await channel.basic_qos(prefetch_count=1)
        await channel.basic_consume(self.name, delivered.put)
        try:
            yield _RabbitWorker(channel, delivered)
        finally:
            await channel.close()


def _redis(url: str) -> Any:
    return redis.asyncio.Redis.from_url(url, decode_responses=True, protocol=2)
