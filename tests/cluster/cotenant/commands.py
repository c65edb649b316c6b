"""The commands of people who operate a cluster, called as they call them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import warm
from cluster.testbed import places
from cluster.testbed.api import Api
from cluster.testbed.controlplane import ControlPlane

from .objects import NAMESPACE
from .toml import write


class Commands:
    """Another user than the administrator sees what RBAC gives them."""

    def __init__(
        self, control_plane: ControlPlane, user: str = "admin", groups: tuple[str, ...] = ("system:masters",)
    ) -> None:
        self._control_plane = control_plane
        self._kubeconfig = control_plane.kubeconfig(user, groups)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = warm.run(words, env={**os.environ, "KUBECONFIG": str(self._kubeconfig)})
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def as_plugin(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """`kubectl cotenant ...`: kubectl finds the program by its name in PATH."""
        script = folder / "kubectl-cotenant"
        script.write_text(f"#!{sys.executable}\nfrom cotenant.cli.main import main\n\nmain()\n")
        script.chmod(0o755)
        environ = {"KUBECONFIG": str(self._kubeconfig), "PATH": f"{folder}:{os.environ['PATH']}"}
        return self._run([str(places.binary("kubectl")), "cotenant", *words], environ)

    def says(self, *words: str) -> str:
        done = self.run(*words)
        if done.returncode:
            raise AssertionError(f"cotenant {' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.says(*words, "-o", "json"))

    def _run(self, line: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            line, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done


def publish_settings(control_plane: ControlPlane, settings: dict[str, Any]) -> None:
    """As the chart does, so that the commands know them."""
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    body = {
        "metadata": {"name": "cotenant-settings", "labels": {"app.kubernetes.io/name": "cotenant"}},
        "data": {"settings.toml": write(settings)},
    }
    installer(control_plane).create(path, body)


def installer(control_plane: ControlPlane) -> Api:
    """Who installs Cotenant is another user than its server, whose objects the policies limit."""
    return control_plane.client("installer", groups=["system:masters"])


@contextmanager
def published_settings(control_plane: ControlPlane, settings: dict[str, Any]) -> Iterator[None]:
    publish_settings(control_plane, settings)
    yield
    withdraw_settings(control_plane)


def withdraw_settings(control_plane: ControlPlane) -> None:
    control_plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/cotenant-settings")
