"""Reads how many messages wait in a Redis list, or for a consumer group of a Redis stream.

A list tells its length and nothing else. A group tells its lag (waiting), its pending entries (delivered and
not acknowledged: in flight) and how many entries it has read; the rest follows from these.
"""

from __future__ import annotations

import time
from typing import Any

from redis.exceptions import ResponseError

from cotenant.signals.checking import SECURE, redis_url
from cotenant.signals.credentials import Credentials, read_credentials, tls_context
from cotenant.signals.json_path import number
from cotenant.signals.redis_client import Command, RedisClient, Reply
from cotenant.signals.servers import Access, Servers
from cotenant.signals.signal import Reading, Secrets, SignalError
from cotenant.signals.specification import InFlight, Redis

LONGEST_NUMBER = 64
"""Bytes that are read of a key that should hold a number."""


class RedisSignal:
    """A list or a stream's group of one server, and what is in flight beside a list."""

    def __init__(self, spec: Redis, in_flight: InFlight | None, secrets: Secrets, servers: Servers) -> None:
        self._spec = spec
        self._worked_on = in_flight.list if in_flight else None
        self._counted = _Collection(in_flight.key) if in_flight and in_flight.key else None
        url, master, database = redis_url(spec.url)

        async def read() -> Credentials:
            references = {"password": spec.password_from, "sentinel_password": spec.sentinel_password_from}
            username = spec.username or url.username
            return await read_credentials(secrets, references, spec.tls, username, url.password)

        async def make(credentials: Credentials) -> RedisClient:
            return RedisClient(
                url,
                master,
                database,
                credentials,
                context=await tls_context(spec.tls, credentials) if url.scheme in SECURE else None,
                server_name=spec.tls.server_name if spec.tls else None,
                sentinel_username=spec.sentinel_username,
                loopback=servers.loopback,
            )

        address = ("redis", str(url), spec.tls, spec.sentinel_username)
        self._access: Access[RedisClient] = Access(servers, address, read, make)

    async def read(self) -> Reading:
        async with self._access.client() as client:
            try:
                if self._spec.list is not None:
                    return await self._list(client, self._spec.list)
                return await self._stream(client, self._spec.stream or "", self._spec.group or "")
            except (AttributeError, IndexError, KeyError, TypeError, ValueError):
                raise SignalError(f"{client.name} answers in a form that Redis does not use") from None

    async def _list(self, client: RedisClient, name: str) -> Reading:
        commands: list[Command] = [lambda pipe: pipe.llen(name)]
        if self._worked_on is not None:
            commands.append(lambda pipe: pipe.llen(self._worked_on))
        if self._counted is not None:
            commands += self._counted.commands()
        replies = await client.run(*commands)
        at = time.time()
        backlog = await _length(client, replies[0], name, "list")
        if self._worked_on is not None:
            in_flight: float | None = await _length(client, replies[1], self._worked_on, "inFlight.list")
        elif self._counted is not None:
            in_flight = await self._counted.count(client, replies[1:])
        else:
            in_flight = None
        return Reading(at, backlog=backlog, in_flight=in_flight)

    async def _stream(self, client: RedisClient, name: str, group: str) -> Reading:
        (groups,) = await client.run(lambda pipe: pipe.xinfo_groups(name))
        at = time.time()
        if isinstance(groups, ResponseError) and "no such key" in str(groups):
            raise SignalError(
                f"{client.name} has no stream {name}: create it with its group: "
                f"XGROUP CREATE {name} {group} $ MKSTREAM"
            )
        await _check(client, groups, name, "stream")
        found = next((each for each in groups if _text(each.get("name")) == group), None)
        if found is None:
            raise SignalError(
                f"stream {name} of {client.name} has no group {group}: create it: "
                f"XGROUP CREATE {name} {group} $"
            )
        return await self._group(client, name, found, at)

    async def _group(self, client: RedisClient, stream: str, group: dict[str, Any], at: float) -> Reading:
        pending, read, lag = group["pending"], group.get("entries-read"), group.get("lag")
        if read is not None and lag is not None:
            arrived, completed = read + lag, max(0, read - pending)
        else:
            # Not read from yet, or the lag is not known: the stream tells, with two whole entries.
            (info,) = await client.run(lambda pipe: pipe.xinfo_stream(stream))
            await _check(client, info, stream, "stream")
            arrived = info.get("entries-added")
            if lag is not None and arrived is not None:
                completed = max(0, arrived - lag - pending)
            else:
                completed = None if read is None else max(0, read - pending)
            lag = _estimated_lag(info, group) if lag is None else lag
        figures = (lag, arrived, completed, pending)
        what = f"group {_text(group['name'])} of stream {stream} of {client.name}"
        return Reading(at, *(None if each is None else number(each, what) for each in figures))

    async def close(self) -> None:
        await self._access.close()


def _estimated_lag(info: dict[str, Any], group: dict[str, Any]) -> int:
    """Returns a group's lag where Redis does not: before version 7, after an entry ahead of the group was
    deleted, and for a group that began in the middle. It may be too large, up to the length of the stream; it
    is zero exactly when nothing is left to read.
    """
    last, delivered = info.get("last-entry"), group.get("last-delivered-id")
    if not last or delivered is None or _entry_id(last[0]) <= _entry_id(delivered):
        return 0
    added, read = info.get("entries-added"), group.get("entries-read")
    ahead = added - read if added is not None and read is not None else info["length"]
    return max(1, min(int(info["length"]), int(ahead)))


def _entry_id(value: Any) -> tuple[int, int]:
    first, _, second = _text(value).partition("-")
    return int(first), int(second or 0)


class _Collection:
    """A key whose elements are counted, or whose number is read; its type is asked for, and remembered."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._type = "string"

    def commands(self) -> list[Command]:
        key = self._key
        counts: dict[str, Command] = {
            "string": lambda pipe: pipe.getrange(key, 0, LONGEST_NUMBER - 1),
            "list": lambda pipe: pipe.llen(key),
            "set": lambda pipe: pipe.scard(key),
            "zset": lambda pipe: pipe.zcard(key),
            "hash": lambda pipe: pipe.hlen(key),
        }
        return [lambda pipe: pipe.type(key), counts[self._type]]

    async def count(self, client: RedisClient, replies: list[Reply]) -> float:
        for _ in range(3):  # the type may change between two questions
            kind, value = replies
            await _check(client, kind, self._key, "inFlight.key")
            name = _text(kind)
            if name == "none":
                return 0.0
            if name not in {"string", "list", "set", "zset", "hash"}:
                raise SignalError(
                    f"inFlight.key: {self._key} of {client.name} is a {name}: a number, list, set, "
                    "sorted set or hash is needed"
                )
            if name == self._type and not isinstance(value, ResponseError):
                what = f"inFlight.key: {self._key} of {client.name}"
                return number((_text(value) or "0") if name == "string" else value, what)
            self._type = name
            replies = await client.run(*self.commands())
        raise SignalError(f"inFlight.key: {self._key} of {client.name} changes its type all the time")


async def _length(client: RedisClient, reply: Reply, key: str, field: str) -> float:
    await _check(client, reply, key, field)
    return number(reply, f"{field}: the length of {key} of {client.name}")


async def _check(client: RedisClient, reply: Reply, key: str, field: str) -> None:
    """Raises what Redis answered, in words, if it is an error."""
    if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
        (kind,) = await client.run(lambda pipe: pipe.type(key))
        wanted = "stream" if field == "stream" else "list"
        names = {"zset": "sorted set", "string": "text or number"}
        found = names.get(_text(kind), _text(kind))
        raise SignalError(
            f"{field}: {key} of {client.name} is a {found}, not a {wanted}: name the {wanted} of messages"
        )
    if isinstance(reply, BaseException):
        raise client.explained(reply)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
