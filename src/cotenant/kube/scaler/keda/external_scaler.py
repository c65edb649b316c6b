"""Answers the five methods of KEDA's external scaler (`externalscaler.proto` of KEDA 2.21).

The metric is the number of replicas that the GpuScaler has decided on, with a target of 1 for each: HPA then
comes to the same number. The trigger is active if that is more than 0: KEDA then wakes the workload.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import NoReturn, TypeVar

import grpc

from cotenant.core.errors import BadInput, CotenantError
from cotenant.kube.protos import keda_external_scaler as keda
from cotenant.kube.protos.grpc_calls import Context, serve, service_handler
from cotenant.kube.scaler.keda.figures import ActsItself, Figures, Key, NotDecided, UnknownScaler
from cotenant.observe.exposition import Counter
from cotenant.settings.declaring import is_dns_name

METRIC = "cotenant-replicas"
"""KEDA puts the index of the trigger before it: `s0-cotenant-replicas`."""
FIELD = "gpuScaler"
"""The field of a trigger's metadata that names the GpuScaler."""
LONGEST = 253
"""Characters of the name of a Kubernetes object."""
AGAIN = (2.0, 4.0, 8.0)
"""Seconds after which `active` is sent again. KEDA (2.21) drops what it receives before the HPA of the
ScaledObject stands, and would wake the workload only when it polls.
"""

R = TypeVar("R")
CODES: Mapping[type[CotenantError], grpc.StatusCode] = {
    BadInput: grpc.StatusCode.INVALID_ARGUMENT,
    UnknownScaler: grpc.StatusCode.NOT_FOUND,
    ActsItself: grpc.StatusCode.FAILED_PRECONDITION,
    NotDecided: grpc.StatusCode.UNAVAILABLE,
}


class ExternalScaler:
    """`handler()` is what a gRPC server serves."""

    def __init__(self, figures: Figures, answers: Counter) -> None:
        self._figures, self._answers = figures, answers
        self._closed = asyncio.Event()

    def handler(self) -> grpc.GenericRpcHandler:
        return service_handler(
            serve(keda.ExternalScaler.IsActive, self._is_active),
            serve(keda.ExternalScaler.StreamIsActive, self._stream_is_active),
            serve(keda.ExternalScaler.GetMetricSpec, self._get_metric_spec),
            serve(keda.ExternalScaler.GetMetrics, self._get_metrics),
            serve(keda.ExternalScaler.StreamMetricSpec, self._stream_metric_spec),
        )

    def end_streams(self) -> None:
        """Ends every stream without an error. After an error, KEDA waits twice as long as the last time
        before it opens the stream again; after such an end, 2 s.
        """
        self._closed.set()
        self._figures.wake_all()

    async def _is_active(self, request: keda.ScaledObjectRef, context: Context) -> keda.IsActiveResponse:
        replicas = await self._answered("IsActive", context, lambda: self._figures.current(key_of(request)))
        return keda.IsActiveResponse(result=replicas > 0)

    async def _get_metrics(
        self, request: keda.GetMetricsRequest, context: Context
    ) -> keda.GetMetricsResponse:
        def value() -> int:
            key = key_of(request.scaledObjectRef)
            if request.metricName != METRIC:
                raise BadInput(f"metricName: {_shown(request.metricName)} is not ours: it is {METRIC}")
            return self._figures.current(key)

        replicas = await self._answered("GetMetrics", context, value)
        # Both fields: KEDA takes the integer where the other one is 0.
        metric = keda.MetricValue(metricName=METRIC, metricValue=replicas, metricValueFloat=float(replicas))
        return keda.GetMetricsResponse(metricValues=[metric])

    async def _get_metric_spec(
        self, request: keda.ScaledObjectRef, context: Context
    ) -> keda.GetMetricSpecResponse:
        """Never depends on a decision: KEDA makes the HPA of it, and logs an error without its reason."""
        await self._answered("GetMetricSpec", context, lambda: key_of(request))
        return _metric_spec()

    async def _stream_metric_spec(
        self, request: keda.ScaledObjectRef, context: Context
    ) -> AsyncIterator[keda.GetMetricSpecResponse]:
        """Sends the specification once: it never changes."""
        await self._answered("StreamMetricSpec", context, lambda: key_of(request))
        yield _metric_spec()
        await self._closed.wait()

    async def _stream_is_active(
        self, request: keda.ScaledObjectRef, context: Context
    ) -> AsyncIterator[keda.IsActiveResponse]:
        """Sends what is known at once, then each change. While there is no decision, nothing is sent: the
        stream waits for one, and the methods that KEDA polls say why.
        """
        key = await self._answered("StreamIsActive", context, lambda: key_of(request))
        sent: bool | None = None
        again: Iterator[float] = iter(())
        with self._figures.following(key) as changed:
            while not self._closed.is_set():
                changed.clear()
                active = self._active(key)
                if active is not None and active is not sent:
                    sent, again = active, iter(AGAIN if active else ())
                    yield keda.IsActiveResponse(result=active)
                elif not await _set_within(changed, next(again, None)) and active is not None:
                    yield keda.IsActiveResponse(result=active)

    def _active(self, key: Key) -> bool | None:
        try:
            return self._figures.decided(key) > 0
        except (UnknownScaler, ActsItself, NotDecided):
            return None

    async def _answered(self, method: str, context: Context, answer: Callable[[], R]) -> R:
        try:
            found = answer()
        except tuple(CODES) as error:
            code = CODES[type(error)]
            self._answers.labels(method, code.name).inc()
            await _abort(context, code, str(error))
        self._answers.labels(method, grpc.StatusCode.OK.name).inc()
        return found


def key_of(request: keda.ScaledObjectRef) -> Key:
    """Returns which GpuScaler a trigger names; it is always one of the ScaledObject's own namespace."""
    name = request.scalerMetadata.get(FIELD)
    if name is None:
        known = ", ".join(sorted(_shown(key) for key in list(request.scalerMetadata)[:10])) or "nothing"
        raise BadInput(f"metadata.{FIELD}: it is missing; name a GpuScaler there (found: {known})")
    if len(name) > LONGEST or not is_dns_name(name):
        raise BadInput(f"metadata.{FIELD}: {_shown(name)} is not the name of a GpuScaler")
    if len(request.namespace) > LONGEST or not is_dns_name(request.namespace):
        raise BadInput(f"namespace: {_shown(request.namespace)} is not the name of a namespace")
    return request.namespace, name


def _metric_spec() -> keda.GetMetricSpecResponse:
    spec = keda.MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
    return keda.GetMetricSpecResponse(metricSpecs=[spec])


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")


async def _abort(context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
    abort: Callable[[grpc.StatusCode, str], Awaitable[NoReturn]] = context.abort
    await abort(code, why)


async def _set_within(event: asyncio.Event, seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
