"""Methods of a `.proto` file, served and called over a real gRPC connection."""

import contextlib

import grpc
import grpc.aio
import pytest

from cotenant.kube.protos import keda_external_scaler as keda
from cotenant.kube.protos import pod_resources_v1
from cotenant.kube.protos.grpc_calls import call, serve, service_handler

pytestmark = pytest.mark.asyncio
Scaler = keda.ExternalScaler


@contextlib.asynccontextmanager
async def connected(*served):
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service_handler(*served),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]
        ) as channel:
            yield channel
    finally:
        await server.stop(None)


async def is_active(request, context):
    return keda.IsActiveResponse(result=request.name == "busy")


async def stream_is_active(request, context):
    for result in (True, False):
        yield keda.IsActiveResponse(result=result)


async def test_a_unary_method_is_called_and_answered():
    async with connected(serve(Scaler.IsActive, is_active)) as channel:
        ask = call(channel, Scaler.IsActive)
        assert (await ask(keda.ScaledObjectRef(name="busy"), timeout=10)).result
        assert not (await ask(keda.ScaledObjectRef(name="idle"), timeout=10)).result


async def test_a_stream_is_read_to_its_end():
    async with connected(serve(Scaler.StreamIsActive, stream_is_active)) as channel:
        responses = call(channel, Scaler.StreamIsActive)(keda.ScaledObjectRef())
        assert [each.result async for each in responses] == [True, False]


async def test_a_method_that_is_not_served_is_unimplemented():
    async with connected(serve(Scaler.IsActive, is_active)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(channel, Scaler.GetMetrics)(keda.GetMetricsRequest(), timeout=10)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_one_handler_serves_one_service():
    lister = serve(pod_resources_v1.PodResourcesLister.List, is_active)
    with pytest.raises(ValueError, match="too many values"):
        service_handler(serve(Scaler.IsActive, is_active), lister)
