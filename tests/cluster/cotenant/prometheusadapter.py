"""Runs a real Prometheus that scrapes Cotenant's servers, and the real prometheus-adapter that makes HPAs read it.

The rule is that of docs/keda.md, the scrape job that of docs/sizing.md; a testbed's servers are processes, so they are
named by address.
"""

import http.client
import ssl
import sys
from pathlib import Path

import pages
import yaml
from cluster.testbed import places
from cluster.testbed.api import Object
from cluster.testbed.component import Component, answers
from cluster.testbed.controlplane import ControlPlane

from . import external_metrics
from .installation import WEBHOOK_PORT, Installation, _own
from .objects import NAMESPACE

sys.path.append(str(pages.ROOT / "scripts"))

import servers as programs

FOLDER = places.STATE / "prometheus"
HOME = "monitoring"
"""The namespace of Prometheus and its adapter."""
PROMETHEUS = "127.0.0.1:9090"


class PrometheusAdapter:
    """Prometheus and its adapter, as processes."""

    def __init__(self, control_plane: ControlPlane, cotenant: Installation) -> None:
        """Raises `programs.CannotGet` where this machine has no Prometheus."""
        self.api = control_plane.api
        found = programs.find("prometheus")
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.prometheus = Component(
            "prometheus",
            [
                found.path,
                f"--config.file={_write('prometheus.yml', self._scraping(cotenant))}",
                f"--storage.tsdb.path={FOLDER / 'data'}",
                f"--web.listen-address={PROMETHEUS}",
            ],
            ready=answers(http.client.HTTPConnection(PROMETHEUS, timeout=2), "/-/ready"),
            environment=found.environment,
        )
        kubeconfig = control_plane.kubeconfig(
            f"system:serviceaccount:{HOME}:prometheus-adapter", ("system:masters",)
        )
        connection = http.client.HTTPSConnection(
            external_metrics.ADDRESS,
            external_metrics.PORT,
            context=ssl._create_unverified_context(),
            timeout=2,
        )
        self.adapter = Component(
            "prometheus-adapter",
            [
                places.prometheus_adapter(),
                f"--config={_write('rules.yaml', _rules())}",
                f"--prometheus-url=http://{PROMETHEUS}",
                "--metrics-relist-interval=5s",
                "--metrics-max-age=1m",
                f"--bind-address={external_metrics.ADDRESS}",
                f"--secure-port={external_metrics.PORT}",
                f"--cert-dir={FOLDER / 'certificates'}",
                f"--lister-kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
            ],
            ready=answers(connection, "/readyz"),
            environment={"KUBECONFIG": str(kubeconfig)},
        )

    def start(self) -> None:
        _own(external_metrics.ADDRESS)
        external_metrics.create(self.api, "/api/v1/namespaces", {"metadata": {"name": HOME}})
        external_metrics.register(self.api, HOME, "prometheus-adapter")
        for component in (self.prometheus, self.adapter):
            component.start()
        for component in (self.prometheus, self.adapter):
            component.wait()
        external_metrics.until_available(self.api)

    def stop(self) -> None:
        for component in (self.adapter, self.prometheus):
            component.stop()
        external_metrics.unregister(self.api)

    def _scraping(self, cotenant: Installation) -> Object:
        authority = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/cotenant-ca")["data"]["ca.crt"]
        (FOLDER / "ca.crt").write_text(authority)
        (text,) = [each for each in pages.manifests("sizing") if "cotenant-server" in each]
        jobs = yaml.safe_load(text)["scrape_configs"]
        (job,) = [each for each in jobs if each["job_name"] == "cotenant-server"]
        for found_by in ("kubernetes_sd_configs", "relabel_configs"):
            del job[found_by]
        job["tls_config"]["ca_file"] = str(FOLDER / "ca.crt")
        job["static_configs"] = [{"targets": [f"{each}:{WEBHOOK_PORT}" for each in cotenant.addresses]}]
        return {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": [job]}


def _rules() -> Object:
    """Returns what stands below `rules` of docs/keda.md, as the adapter itself names it."""
    (text,) = [each for each in pages.manifests("keda") if "seriesQuery" in each]
    return {"externalRules": yaml.safe_load(text)["rules"]["external"]}


def _write(name: str, content: Object) -> Path:
    path = FOLDER / name
    path.write_text(yaml.safe_dump(content))
    return path
