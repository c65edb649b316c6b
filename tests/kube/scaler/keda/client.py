"""A client that protoc generates from KEDA's own proto, as KEDA's is: it knows nothing of our message types."""

import functools
import importlib
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import grpc
import grpc.aio
from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parents[4] / "protos/github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
NAME = "cotenant-keda.cotenant-system.svc"


@functools.cache
def generated() -> SimpleNamespace:
    """The modules `externalscaler_pb2` and `externalscaler_pb2_grpc`."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{PROTOS}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
        assert protoc.main([*arguments, str(PROTOS / "externalscaler.proto")]) == 0
        sys.path.insert(0, folder)
        try:
            modules = [importlib.import_module(f"externalscaler_pb2{end}") for end in ("", "_grpc")]
        finally:
            sys.path.remove(folder)
    return SimpleNamespace(messages=modules[0], services=modules[1])


def channel(port: int, trusted: bytes, name: str = NAME) -> grpc.aio.Channel:
    """With TLS, as KEDA has it with `caCert`."""
    options = [("grpc.ssl_target_name_override", name), ("grpc.enable_http_proxy", 0)]
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(trusted), options)


class Trigger:
    """What KEDA asks for one trigger of a ScaledObject."""

    def __init__(self, channel, namespace: str, /, **metadata: str) -> None:
        made = generated()
        self._stub, self._messages = made.services.ExternalScalerStub(channel), made.messages
        self.ref = made.messages.ScaledObjectRef(name="so", namespace=namespace, scalerMetadata=metadata)

    async def is_active(self) -> bool:
        return (await self._stub.IsActive(self.ref, timeout=10)).result

    async def value(self, metric: str = "cotenant-replicas") -> float:
        request = self._messages.GetMetricsRequest(scaledObjectRef=self.ref, metricName=metric)
        (value,) = (await self._stub.GetMetrics(request, timeout=10)).metricValues
        assert value.metricName == metric
        assert value.metricValue == value.metricValueFloat
        return value.metricValueFloat

    async def spec(self) -> tuple[str, float]:
        return _only(await self._stub.GetMetricSpec(self.ref, timeout=10))

    def active_stream(self):
        return self._stub.StreamIsActive(self.ref)

    def spec_stream(self):
        return self._stub.StreamMetricSpec(self.ref)

    async def asked_all(self) -> list[grpc.StatusCode]:
        """The status of each of the five methods, in the proto's order."""
        codes = []
        for ask in (self.is_active, self._first_active, self.spec, self.value, self._first_spec):
            try:
                await ask()
            except grpc.aio.AioRpcError as error:
                codes.append(error.code())
            else:
                codes.append(grpc.StatusCode.OK)
        return codes

    async def _first_active(self):
        return await self.active_stream().read()

    async def _first_spec(self):
        return _only(await self.spec_stream().read())


def _only(response) -> tuple[str, float]:
    (spec,) = response.metricSpecs
    assert spec.targetSize == spec.targetSizeFloat
    return spec.metricName, spec.targetSizeFloat
