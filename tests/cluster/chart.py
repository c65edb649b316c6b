"""The chart, rendered by the real Helm, and its parts put into a cluster by the real kubectl."""

import json
import subprocess
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.testbed import places
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane

CHART = Path(__file__).parents[2] / "charts" / "cotenant"
NAMESPACE = "cotenant-system"
COMPONENT = "app.kubernetes.io/component"
ACCESS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def helm(*arguments: str) -> str:
    """Its standard output; what is wrong is its standard error."""
    if not places.helm().exists():
        pytest.skip("no Helm: `make testbed` builds it")
    done = subprocess.run(
        [str(places.helm()), *arguments], capture_output=True, text=True, check=False, timeout=100
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def render(**values: Any) -> list[Object]:
    """All that would be installed. A value goes by its path: `scheduler__enabled=False`."""
    options = [f"--set-json={path.replace('__', '.')}={json.dumps(value)}" for path, value in values.items()]
    return [each for each in yaml.load_all(_rendered(*options), Loader=yaml.CSafeLoader) if each]


@cache
def _rendered(*options: str) -> str:
    version = f"--kube-version={places.version()}"
    return helm("template", "cotenant", str(CHART), f"--namespace={NAMESPACE}", version, *options)


def named(documents: Iterable[Object], kind: str, name: str) -> Object:
    (found,) = [each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def policies(documents: Iterable[Object]) -> list[Object]:
    return [each for each in documents if each["metadata"]["labels"][COMPONENT] == "policy"]


def access(documents: Iterable[Object]) -> list[Object]:
    """Service accounts, and what they may do."""
    return [each for each in documents if each["kind"] in ACCESS]


def apply(control_plane: ControlPlane, documents: Iterable[Object]) -> None:
    control_plane.kubectl("apply", "-f", "-", manifest=yaml.dump_all(documents, Dumper=yaml.CSafeDumper))


def make_namespace(api: Api) -> None:
    try:
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    except Refused as refused:
        if refused.code != 409:
            raise


def until_allowed(attempt: Callable[[], object], seconds: float = 30) -> None:
    """And they count a moment longer than they are there."""
    end = time.monotonic() + seconds
    while True:
        try:
            attempt()
        except Refused:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def until_refused(attempt: Callable[[], object], seconds: float = 30) -> None:
    """Policies count a moment after they were made. The attempt is a dry run."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            attempt()
        except Refused:
            return
        time.sleep(0.1)
    raise AssertionError("no policy counts")
