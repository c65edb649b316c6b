"""Reads the depth, the counters and the unacknowledged messages of a RabbitMQ queue over its management API.

`rabbitmq_amqp.py` reads the depth alone, over AMQP, where the management plugin is not there.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote, unquote

from cotenant.signals.checking import HTTP
from cotenant.signals.http_client import HttpClient, http_access
from cotenant.signals.json_path import number
from cotenant.signals.servers import Servers
from cotenant.signals.signal import NoSample, Reading, Secrets, SignalError
from cotenant.signals.specification import RabbitMQ
from cotenant.signals.urls import parse_url

COLUMNS = "messages_ready,messages_unacknowledged,message_stats,state"
"""What is asked of a queue: a whole answer is 5 KiB, with a sample of every rate."""


class RabbitMQSignal:
    """A queue, asked over the management API."""

    def __init__(self, spec: RabbitMQ, secrets: Secrets, servers: Servers) -> None:
        url = parse_url(spec.url, HTTP)
        self._name = f"queue {spec.queue} of {url}"
        self._vhost = spec.vhost or "/"
        base = url.path.rstrip("/").removesuffix("/api")
        self._overview = f"{base}/api/overview?columns=rates_mode,disable_stats"
        self._target = (
            f"{base}/api/queues/{quote(self._vhost, safe='')}/{quote(spec.queue, safe='')}?columns={COLUMNS}"
        )
        self._counts: bool | None = None
        self._access = http_access(servers, secrets, url, spec)

    async def read(self) -> Reading:
        async with self._access.client() as client:
            if self._counts is None:
                self._counts = await self._keeps_counters(client)
            queue = await self._get(client, self._target)
        return figures(queue, self._name, time.time(), counted=self._counts)

    async def _keeps_counters(self, client: HttpClient) -> bool:
        """Asks once whether this server counts messages: its owner can turn that off."""
        overview = await self._get(client, self._overview)
        return overview.get("rates_mode") != "none" and overview.get("disable_stats") is not True

    async def _get(self, client: HttpClient, target: str) -> dict[str, Any]:
        answer = await client.get(target)
        if answer.status == 404:
            raise SignalError(
                f"{self._name} does not exist in virtual host {self._vhost}: check queue and vhost, and that "
                "url is the management API"
            )
        if answer.status != 200:
            raise SignalError(f"{self._name}: the management API answers {answer.status}")
        document = answer.json(client.name) or {}  # an object without a field is written as []
        if not isinstance(document, dict):
            raise SignalError(f"{client.name} does not answer as RabbitMQ's management API does: check url")
        return document

    async def close(self) -> None:
        await self._access.close()


def figures(queue: dict[str, Any], name: str, at: float, *, counted: bool) -> Reading:
    """Makes a reading of what the API says of a queue. A queue without counters yet has had no message."""
    if queue.get("state") in ("down", "stopped", "crashed"):  # no set: it may be any JSON
        raise SignalError(f"{name} is {queue['state']}: its node is not running")
    if "messages_ready" not in queue:
        raise NoSample(f"{name} has no figures yet: the server has just started, or has statistics disabled")
    found = queue.get("message_stats")
    stats: dict[str, Any] = found if isinstance(found, dict) else {}

    def counter(*names: str) -> float | None:
        return sum(number(stats.get(each, 0), f"{each} of {name}") for each in names) if counted else None

    return Reading(
        at,
        backlog=number(queue["messages_ready"], f"messages_ready of {name}"),
        arrived=counter("publish"),
        # Without acknowledgements a message is done, for the server, when it is delivered.
        completed=counter("ack", "deliver_no_ack", "get_no_ack"),
        in_flight=number(queue.get("messages_unacknowledged"), f"messages_unacknowledged of {name}"),
    )


def amqp_vhost(path: str, vhost: str | None) -> str:
    """Returns the virtual host of an AMQP URL: `/` without a path, else what follows its slash."""
    return vhost or unquote(path.removeprefix("/")) or "/"
