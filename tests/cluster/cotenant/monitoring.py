"""Runs a real Prometheus that scrapes servers and agent as the chart's own PodMonitors say, with the chart's rules.

The Prometheus Operator would translate the monitors; here that is done by hand, field by field. A testbed's servers are
processes, so they are named by address instead of being found by their pods' labels.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path

import pages
import yaml
from cluster import chart
from cluster.testbed import places
from cluster.testbed.api import Api, Object
from cluster.testbed.component import Component, answers

sys.path.append(str(pages.ROOT / "scripts"))

import servers as programs

FOLDER = places.STATE / "monitoring"
ADDRESS = "127.0.0.1:9091"
EVERY = "1s"
"""Between two scrapes: a series that is gone is gone from the next one on."""


class Scraper:
    """Prometheus with the scrape jobs that it is given. Raises `programs.CannotGet` where this machine has none."""

    def __init__(self, jobs: Sequence[Object], rules: Sequence[Path] = (), folder: Path = FOLDER) -> None:
        found = programs.find("prometheus")
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://{ADDRESS}"
        self._config, self._data = folder / "prometheus.yml", folder / "data"
        self._tool, self._environment = found.path.with_name("promtool"), found.environment
        self._rules = [str(each) for each in rules]
        self._write(jobs)
        self.component = Component(
            "prometheus",
            [
                found.path,
                f"--config.file={self._config}",
                f"--storage.tsdb.path={self._data}",
                f"--web.listen-address={ADDRESS}",
            ],
            ready=answers(http.client.HTTPConnection(ADDRESS, timeout=2), "/-/ready"),
            environment=found.environment,
        )

    def backfill(self, openmetrics: str) -> None:
        """Gives it a past, before it is started, by its own promtool."""
        written = self._config.with_name("history")
        written.write_text(openmetrics)
        command = [self._tool, "tsdb", "create-blocks-from", "openmetrics", written, self._data]
        environment = {**os.environ, **self._environment}
        subprocess.run(command, check=True, capture_output=True, env=environment)

    def scrape(self, jobs: Sequence[Object]) -> None:
        """Has other jobs from now on."""
        self._write(jobs)
        os.kill(self.component.pid, signal.SIGHUP)

    def _write(self, jobs: Sequence[Object]) -> None:
        config = {
            "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
            "scrape_configs": list(jobs),
            "rule_files": self._rules,
        }
        self._config.write_text(yaml.safe_dump(config))

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each result, now."""
        found = self._ask(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        if found["status"] != "success":
            raise AssertionError(f"{expression}: {found}")
        return [(each["metric"], float(each["value"][1])) for each in found["data"]["result"]]

    def rules(self) -> list[Object]:
        """The rules as Prometheus evaluates them, with what went wrong."""
        groups = self._ask("/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def targets(self) -> dict[str, tuple[str, str]]:
        """Health and last error by job."""
        active = self._ask("/api/v1/targets")["data"]["activeTargets"]
        return {each["labels"]["job"]: (each["health"], each["lastError"]) for each in active}

    def _ask(self, path: str) -> Object:
        connection = http.client.HTTPConnection(ADDRESS, timeout=10)
        try:
            connection.request("GET", path)
            found: Object = json.loads(connection.getresponse().read())
            return found
        finally:
            connection.close()


class Prometheus(Scraper):
    """Scrapes as the chart's monitors say, and once with a name that the certificate has not."""

    def __init__(self, api: Api, targets: Mapping[str, Sequence[str]]) -> None:
        """`targets`: addresses and ports by the monitor's name."""
        jobs = [job(api, name, of) for name, of in targets.items()]
        documents = chart.render(prometheus__enabled=True, prometheus__rules__enabled=True)
        rules = FOLDER / "rules.yaml"
        rules.write_text(yaml.safe_dump(chart.named(documents, "PrometheusRule", "cotenant")["spec"]))
        wrong = {**jobs[0], "job_name": "another-name"}
        wrong["tls_config"] = {**wrong["tls_config"], "server_name": "cotenant-agent.other.svc"}
        super().__init__([*jobs, wrong], [rules])


def job(api: Api, name: str, targets: Sequence[str]) -> Object:
    """The scrape job that the operator would make of one of the chart's PodMonitors."""
    monitor = chart.named(
        chart.render(prometheus__enabled=True, prometheus__rules__enabled=True), "PodMonitor", name
    )
    meta, (endpoint,) = monitor["metadata"], monitor["spec"]["podMetricsEndpoints"]
    trusted = endpoint["tlsConfig"]["ca"]["configMap"]
    path = f"/api/v1/namespaces/{meta['namespace']}/configmaps/{trusted['name']}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    bundle = FOLDER / f"{meta['name']}-ca.crt"
    bundle.write_text(api.get(path)["data"][trusted["key"]])
    return {
        "job_name": f"{meta['namespace']}/{meta['name']}",
        "scheme": endpoint["scheme"],
        "metrics_path": endpoint["path"],
        "honor_labels": endpoint["honorLabels"],
        "tls_config": {"ca_file": str(bundle), "server_name": endpoint["tlsConfig"]["serverName"]},
        "static_configs": [{"targets": list(targets)}],
    }
