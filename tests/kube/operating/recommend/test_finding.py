"""The cluster's Prometheus is found by its Service and asked through the API server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kube.fakeapi import FakeApi
from kube.operating.recommend.serving import own_address, serve

from cotenant.kube.api.errors import Forbidden, Invalid, KubeError, NotFound, TooLong, Unreachable
from cotenant.kube.api.resources import SERVICES
from cotenant.kube.operating.recommend.finding import NoPrometheus, ServiceTransport, find_prometheus
from cotenant.observe import prometheus
from cotenant.observe.prometheus import PrometheusFailed, TooMuch, Unavailable, instant

pytestmark = pytest.mark.asyncio
WANTED = ("cotenant_container_memory_peak_bytes", "DCGM_FI_DEV_FB_USED")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "_PAUSE", 0.001)


class Api(FakeApi):
    """Answers through the proxy of Services."""

    def __init__(self) -> None:
        super().__init__()
        self.served: dict[str, Any] = {}
        """By `namespace/service:port`: series, or the error."""
        self.fetched: list[str] = []

    async def fetch(self, path: str, query: Mapping[str, str], **_: object) -> bytes:
        parts = path.split("/")
        assert parts[:4] == ["", "api", "v1", "namespaces"]
        assert parts[7] == "proxy"
        key = f"{parts[4]}/{parts[6]}"
        self.fetched.append(key)
        found = self.served.get(key, NotFound("not found"))
        if isinstance(found, Exception):
            raise found
        result = [{"metric": {}, "value": [0, "1"]}] * found
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()

    def service(
        self, name: str, labels: dict[str, str], *ports: tuple[str, int], namespace: str = "monitoring"
    ) -> None:
        spec = {"ports": [{"name": port, "port": number} for port, number in ports]}
        self.put(SERVICES, {"metadata": {"name": name, "labels": labels}, "spec": spec}, namespace)


@pytest.mark.parametrize(
    ("labels", "ports", "served"),
    [
        (
            {"app": "kube-prometheus-stack-prometheus"},
            [("reloader-web", 8080), ("http-web", 9090)],
            "monitoring/it:9090",
        ),
        ({"app": "prometheus", "component": "server"}, [("http", 80)], "monitoring/it:80"),
        ({"operated-prometheus": "true"}, [("web", 9090), ("grpc", 10901)], "monitoring/it:9090"),
        ({"app.kubernetes.io/name": "prometheus"}, [("https", 9091)], "monitoring/https:it:9091"),
        ({"app.kubernetes.io/name": "vmsingle"}, [("http", 8429)], "monitoring/it:8429"),
        ({"app": "prometheus"}, [("", 9090)], "monitoring/it:9090"),
    ],
)
async def test_services_of_known_installers_are_found(
    labels: dict[str, str], ports: list[tuple[str, int]], served: str
) -> None:
    api = Api()
    api.service("other", {"app": "web"}, ("http", 80))
    api.service("it", labels, *ports)
    api.served[served] = 1
    found = await find_prometheus(api, WANTED, 0.0)  # type: ignore[arg-type]
    assert found.name == "service monitoring/it"
    assert set(api.fetched) == {served}


async def test_the_one_that_has_the_series_wins() -> None:
    api = Api()
    api.service("apps", {"app": "kube-prometheus-stack-prometheus"}, ("web", 9090), namespace="apps")
    api.service("gpus", {"app": "prometheus"}, ("web", 9090), namespace="gpus")
    api.served = {"apps/apps:9090": 0, "gpus/gpus:9090": 1}
    assert (await find_prometheus(api, WANTED, 0.0)).namespace == "gpus"  # type: ignore[arg-type]
    api.served["gpus/gpus:9090"] = 0
    assert (await find_prometheus(api, WANTED, 0.0)).namespace == "apps"  # type: ignore[arg-type]
    api.served["apps/apps:9090"] = Unreachable("no endpoints")
    assert (await find_prometheus(api, WANTED, 0.0)).namespace == "gpus"  # type: ignore[arg-type]


async def test_none_is_found_or_none_answers() -> None:
    api = Api()
    api.service("headless", {"app": "prometheus"})
    with pytest.raises(
        NoPrometheus, match="no Service of the cluster looks like Prometheus: name it with --prometheus"
    ):
        await find_prometheus(api, WANTED, 0.0)  # type: ignore[arg-type]
    api.service("it", {"app": "prometheus"}, ("web", 9090))
    api.served["monitoring/it:9090"] = Forbidden("no")
    with pytest.raises(NoPrometheus, match="permission to get services/proxy in namespace monitoring"):
        await find_prometheus(api, WANTED, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TooLong("long"), TooMuch),
        (Invalid("no", code=422), TooMuch),
        (Invalid("no", code=400), PrometheusFailed),
        (KubeError("no", code=503), Unavailable),
        (Unreachable("gone"), Unavailable),
        (NotFound("no"), PrometheusFailed),
    ],
)
async def test_errors_on_the_way_are_those_of_a_prometheus(error: Exception, kind: type[Exception]) -> None:
    api = Api()
    api.served["monitoring/it:9090"] = error
    with pytest.raises(kind):
        await instant(ServiceTransport(api, "monitoring", "it", "9090"), "up", 0.0)  # type: ignore[arg-type]


class _Prometheus(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        result = [{"metric": {"asked": self.path.partition("?")[0]}, "value": [0, "7"]}]
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listening() -> Iterator[tuple[str, int]]:
    server = ThreadingHTTPServer((own_address(), 0), _Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[0], server.server_port  # type: ignore[misc]
    server.shutdown()
    server.server_close()


async def test_through_a_real_api_server(client, namespace, listening) -> None:
    await serve(client, namespace, *listening)
    transport = await eventually(lambda: find_prometheus(client, WANTED, 0.0))
    assert transport.name == f"service {namespace}/prometheus"
    assert await instant(transport, "up", 0.0) == [({"asked": "/api/v1/query"}, 7.0)]


async def eventually(find: Callable[[], Awaitable[ServiceTransport]]) -> ServiceTransport:
    """The API server's own cache of endpoints may be a little late."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await find()
            except NoPrometheus as error:
                assert "no endpoints available" in str(error)  # noqa: PT017
                await asyncio.sleep(0.2)
