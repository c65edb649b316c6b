"""Opens the queue or the query that a specification describes. Client libraries are imported when one is
needed.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from cotenant.signals.checking import HTTP
from cotenant.signals.servers import Servers
from cotenant.signals.signal import Query, Reading, Secrets, Signal
from cotenant.signals.specification import QuerySpecification, QueueSpecification


def open_signal(spec: QueueSpecification, secrets: Secrets, servers: Servers | None = None) -> Signal:
    """Opens a queue. Nothing is connected before the first read; `servers` are shared by all signals of a
    process.
    """
    shared = servers if servers is not None else Servers()
    signal = _queue(spec, secrets, shared)
    sample = spec.in_flight
    if sample is None or not (sample.prometheus or sample.http):
        return signal
    return _WithInFlight(signal, open_query(sample, secrets, shared))


def open_query(spec: QuerySpecification, secrets: Secrets, servers: Servers | None = None) -> Query:
    """Opens a query for one figure."""
    shared = servers if servers is not None else Servers()
    if spec.prometheus is not None:
        from cotenant.signals.prometheus import PrometheusFigure

        return PrometheusFigure(spec.prometheus, secrets, shared)
    if spec.http is not None:
        from cotenant.signals.http import HttpFigure

        return HttpFigure(spec.http, secrets, shared)
    raise ValueError("a query that was not checked")


def _queue(spec: QueueSpecification, secrets: Secrets, servers: Servers) -> Signal:
    if spec.redis is not None:
        from cotenant.signals.redis import RedisSignal

        return RedisSignal(spec.redis, spec.in_flight, secrets, servers)
    if spec.rabbitmq is not None:
        if spec.rabbitmq.url.partition("://")[0].lower() in HTTP:
            from cotenant.signals.rabbitmq import RabbitMQSignal

            return RabbitMQSignal(spec.rabbitmq, secrets, servers)
        from cotenant.signals.rabbitmq_amqp import AmqpSignal

        return AmqpSignal(spec.rabbitmq, secrets, servers)
    if spec.prometheus is not None:
        from cotenant.signals.prometheus import PrometheusSignal

        return PrometheusSignal(spec.prometheus, secrets, servers)
    if spec.http is not None:
        from cotenant.signals.http import HttpSignal

        return HttpSignal(spec.http, secrets, servers)
    if spec.nats is not None:
        from cotenant.signals.nats import NatsSignal

        return NatsSignal(spec.nats, secrets, servers)
    raise ValueError("a queue that was not checked")


class _WithInFlight:
    """A queue that tells its depth, and a query that tells what is in flight."""

    def __init__(self, queue: Signal, query: Query) -> None:
        self._queue, self._query = queue, query

    async def read(self) -> Reading:
        reading, in_flight = await asyncio.gather(
            self._queue.read(), self._query.read(), return_exceptions=True
        )
        if isinstance(reading, BaseException):
            raise reading
        if isinstance(in_flight, BaseException):
            raise in_flight
        return replace(reading, in_flight=in_flight)

    async def close(self) -> None:
        await self._queue.close()
        await self._query.close()
