"""A real Redis at an address of the testbed, and queues in it of which every message's life is known."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import redis.asyncio
from cluster.testbed import places
from cluster.testbed.component import Component
from signals.servers import program

from .scaledworkloads import GROUP, ScaledWorkload

ADDRESS = "10.200.9.1"
PORT = 6379
URL = f"redis://{ADDRESS}:{PORT}"


def redis_server() -> Component:
    """Not on loopback: a queue is somewhere else than the server that asks it."""
    subprocess.run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "cni0"], check=True)
    found = program("redis")
    folder = places.STATE / "redis"
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--bind", ADDRESS, "--port", PORT, "--save", "", "--dir", folder, "--protected-mode", "no"]
    server = Component("redis", [found.path, *options], environment=found.environment)
    server.ready = lambda: "Ready to accept connections" in server.tail()
    return server


@dataclass
class Message:
    """Unix times between which it was surely in the queue, waiting or in work."""

    id: str
    sent: float
    """When it began to be pushed; `since` is when it was there."""
    since: float = inf
    until: float = inf
    entry: bytes = b""
    """In a stream."""


@dataclass
class MessageQueue:
    """A list with a second list of messages in work, or a stream with a group. Messages are kept when they are done: they are
    the record of what the queue has had."""

    workload: ScaledWorkload
    client: redis.asyncio.Redis
    messages: list[Message] = field(default_factory=list)
    waiting: list[Message] = field(default_factory=list)
    """As Redis has them, too."""

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def is_list(self) -> bool:
        return self.workload.queue == "list"

    async def create(self) -> None:
        if not self.is_list:
            await self.client.xgroup_create(self.name, GROUP, mkstream=True)

    async def push(self) -> None:
        message = Message(f"{self.name}/{len(self.messages)}", time.time())
        self.messages.append(message)
        if self.is_list:
            await self.client.lpush(self.name, message.id)
        else:
            message.entry = await self.client.xadd(self.name, {"id": message.id})
        message.since = time.time()
        self.waiting.append(message)

    async def take(self) -> Message:
        """The first that waits; there must be one."""
        message = self.waiting.pop(0)
        if self.is_list:
            taken = await self.client.lmove(self.name, f"{self.name}:work", "RIGHT", "LEFT")
            found = taken.decode()
        else:
            (_, [(_, fields)]), *_ = await self.client.xreadgroup(GROUP, "worker", {self.name: ">"}, count=1)
            found = fields[b"id"].decode()
        if found != message.id:
            raise AssertionError(f"{self.name} gave {found}, not {message.id}")
        return message

    async def finish(self, message: Message) -> None:
        message.until = time.time()
        if self.is_list:
            gone = await self.client.lrem(f"{self.name}:work", 1, message.id)
        else:
            gone = await self.client.xack(self.name, GROUP, message.entry)
        if gone != 1:
            raise AssertionError(f"{message.id} was not in work")

    async def is_empty(self) -> bool:
        """By Redis's own word."""
        if self.is_list:
            return not await self.client.llen(self.name) and not await self.client.llen(f"{self.name}:work")
        (found,) = await self.client.xinfo_groups(self.name)
        return not found["pending"] and not found["lag"]


def unfinished(queues: Sequence[MessageQueue]) -> int:
    return sum(message.until == inf for queue in queues for message in queue.messages)
