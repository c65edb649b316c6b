"""Finds the cluster's Prometheus by the labels that its installers set, and asks it through the API server.

Nobody has to forward a port: the API server's proxy reaches every Service. It needs the permission
`services/proxy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from cotenant.core.errors import CotenantError
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.errors import Forbidden, KubeError, NotFound, TooLong, Unreachable
from cotenant.kube.api.objects import Generic
from cotenant.kube.api.resources import SERVICES
from cotenant.observe.prometheus import Answer, PrometheusFailed, TooMuch, Unavailable, instant

SELECTORS = (
    "app=kube-prometheus-stack-prometheus",
    "app=prometheus-operator-prometheus",
    "app.kubernetes.io/name=prometheus",
    "operated-prometheus=true",
    "app=prometheus,component=server",
    "app=prometheus",
    "app.kubernetes.io/name=thanos-query",
    "app.kubernetes.io/component=query,app.kubernetes.io/name=thanos",
    "app.kubernetes.io/name=vmsingle",
    "app.kubernetes.io/name=victoria-metrics-single",
)
"""Labels of Services: kube-prometheus-stack and its former name, kube-prometheus and the chart
`prometheus`, the operator's own Service, older charts, Thanos, VictoriaMetrics.
"""
_PORTS = ("http-web", "web", "http", "https", "http-prometheus")
_NUMBERS = (9090, 80, 10902, 8429, 8428)
LARGEST = 128 << 20
WITHIN = 60.0


class NoPrometheus(CotenantError):
    """No Prometheus was found, or none that answers."""


@dataclass(frozen=True, slots=True)
class ServiceTransport:
    """Asks a Service through the API server."""

    client: Client
    namespace: str
    service: str
    port: str
    """Name or number, with `https:` before the Service's name where it speaks TLS."""
    scheme: str = ""

    @property
    def name(self) -> str:
        return f"service {self.namespace}/{self.service}"

    async def get(self, path: str, query: Mapping[str, str]) -> Answer:
        where = quote(f"{self.scheme}{self.service}:{self.port}", safe=":")
        target = f"/api/v1/namespaces/{quote(self.namespace, safe='')}/services/{where}/proxy{path}"
        try:
            return Answer(200, await self.client.fetch(target, query, within=WITHIN, limit=LARGEST))
        except TooLong:
            raise TooMuch(
                f"{self.name} answers more than {LARGEST >> 20} MiB: name a namespace with -n"
            ) from None
        except Forbidden:
            raise PrometheusFailed(
                f"{self.name} may not be asked: get the permission to get services/proxy in namespace "
                f"{self.namespace}, or name its address with --prometheus"
            ) from None
        except NotFound:
            return Answer(404, b"")
        except Unreachable as error:
            raise Unavailable(str(error)) from None
        except KubeError as error:
            if error.code in {413, 422}:
                raise TooMuch(f"{self.name}: {error}") from None
            if error.code in {429, 502, 503, 504}:
                raise Unavailable(f"{self.name} does not answer: {error}") from None
            raise PrometheusFailed(f"{self.name}: {error}") from None


async def find_prometheus(client: Client, wanted: tuple[str, ...], now: float) -> ServiceTransport:
    """Returns the first Prometheus that has one of the `wanted` metrics, or else the first that answers."""
    answers: ServiceTransport | None = None
    failures: list[str] = []
    for each in await _candidates(client):
        try:
            found = await instant(each, " or ".join(f"count({metric})" for metric in wanted), now)
        except (PrometheusFailed, KubeError) as error:
            failures.append(str(error))
            continue
        if found:
            return each
        answers = answers or each
    if answers is not None:
        return answers
    if failures:
        raise NoPrometheus(f"no Prometheus answers: {failures[0]}")
    raise NoPrometheus(
        "no Service of the cluster looks like Prometheus: name it with --prometheus URL, or give samples "
        "with --from-csv"
    )


async def _candidates(client: Client) -> list[ServiceTransport]:
    found: dict[tuple[str, str], ServiceTransport] = {}
    for selector in SELECTORS:
        for service in (await client.list(SERVICES, Selection(labels=selector))).items:
            meta = service.metadata
            if (meta.namespace, meta.name) not in found and (port := _port(service)) is not None:
                found[meta.namespace, meta.name] = ServiceTransport(client, meta.namespace, meta.name, *port)
    return list(found.values())


def _port(service: Generic) -> tuple[str, str] | None:
    """Chooses the port of the HTTP API, and how it is spoken."""
    ports: list[dict[str, Any]] = [each for each in service.spec.get("ports") or () if isinstance(each, dict)]

    def rank(port: dict[str, Any]) -> tuple[int, int]:
        name, number = port.get("name", ""), port.get("port", 0)
        return (
            _PORTS.index(name) if name in _PORTS else len(_PORTS),
            _NUMBERS.index(number) if number in _NUMBERS else len(_NUMBERS),
        )

    if not ports:
        return None
    best = min(ports, key=rank)
    secure = best.get("name") == "https" or best.get("port") in {443, 8443}
    return str(best.get("port")), "https:" if secure else ""
