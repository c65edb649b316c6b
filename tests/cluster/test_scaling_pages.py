"""Every command of the pages about scaling and idleness, typed as it stands in the text, against a real API server."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pages
import pytest
from cluster.cotenant.external_metrics import ADDRESS
from cluster.cotenant.installation import _own
from cluster.cotenant.observed import NAME, Observed, define
from cluster.testbed import hollow, places
from cluster.testbed.api import Api, Object
from cluster.testbed.controlplane import ControlPlane

SENTENCES = {"kubectl describe pod", "kubectl apply -n NAMESPACE -f FILE"}
"""Named in a sentence, not typed so; as are all of two words."""
ELSEWHERE = {"kubectl cotenant explain POD", "cotenant simulate scaling --trace FILE"}
"""Typed by other tests: of operating and of the simulation."""
LAST = {"kubectl delete crd gpuscalers.cotenant.dev", "kubectl delete -f deploy/cotenant.yaml"}
"""Remove the definition, or all of Cotenant: typed by the tests of installation."""


class Reader:
    """Somebody who has a kubeconfig, and works in one namespace."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.control_plane, self.namespace = control_plane, namespace

    def type(self, text: str) -> str:
        program, *words = shlex.split(text)
        access = ["--kubeconfig", str(self.control_plane.kubeconfig())]
        if "-A" not in words and "-n" not in words:
            access += ["--namespace", self.namespace]
        programs: dict[str, list[object]] = {
            "kubectl": [places.binary("kubectl"), *access],
            "cotenant": [sys.executable, "-m", "cotenant.cli.main"],
        }
        after = access if program == "cotenant" else []
        done = subprocess.run(
            [*map(str, programs[program]), *words, *after],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def _server(start_cotenant: Any, control_plane: ControlPlane) -> None:
    define(control_plane)
    start_cotenant(servers=1, policies=True, settings={"scaler": {"poll": "1s"}})


@pytest.fixture
def observed(_server: None, api: Api, namespace: str, hollow_nodes: Any) -> Iterator[Observed]:
    hollow_nodes([hollow.node("hollow-pages")])
    _own(ADDRESS)
    observed = Observed(api, namespace, ADDRESS)
    yield observed
    observed.queue.close()


def typed(page: str) -> list[str]:
    found = dict.fromkeys(each.text for each in pages.commands(page))
    return [each for each in found if not each.startswith(("helm", "pip")) and len(each.split()) > 2]


def test_every_command_of_gpuscaler_works_as_it_stands(
    control_plane: ControlPlane, api: Api, observed: Observed
) -> None:
    reader = Reader(control_plane, observed.namespace)
    workloads = f"/apis/apps/v1/namespaces/{observed.namespace}/deployments"
    api.create(workloads, _deployment("notebook", {"cotenant.dev/released-replicas": "2"}))
    left = [each for each in typed("gpuscaler") if each not in SENTENCES | ELSEWHERE | LAST]
    said = {each: reader.type(each) for each in left}
    assert NAME in said.pop("kubectl get gpuscalers")
    assert "condition met" in said.pop(f"kubectl wait --for=condition=Ready gpuscaler/{NAME}")
    assert "scaleDownThreshold" in said.pop("kubectl explain gpuscaler.spec")
    patched = next(each for each in said if each.startswith("kubectl patch gpuscaler"))
    assert "patched" in said.pop(patched)
    assert api.get(f"{observed.scaler}/{NAME}")["spec"]["mode"] == "act"
    annotated = next(each for each in said if each.startswith("kubectl annotate deployment notebook"))
    assert "annotated" in said.pop(annotated)
    said.pop("cotenant wake notebook")
    assert api.get(f"{workloads}/notebook")["spec"]["replicas"] == 2
    assert said == {}, "typed, and nothing was expected of it"


def test_every_command_of_idleness_works_as_it_stands(
    control_plane: ControlPlane, api: Api, observed: Observed
) -> None:
    reader = Reader(control_plane, observed.namespace)
    pods = f"/api/v1/namespaces/{observed.namespace}/pods"
    spec = {**_pod(), "schedulingGates": [{"name": "example.com/never"}]}
    """Where it ran, the hollow kubelet would write its conditions."""
    api.create(pods, {"metadata": {"name": "notebook"}, "spec": spec})
    idle = {
        "type": "cotenant.dev/GPUIdle",
        "status": "True",
        "reason": "NoActivity",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    api.patch(f"{pods}/notebook/status", {"status": {"conditions": [idle]}}, kind="strategic")
    (block,) = re.findall(r"^```\n(kubectl.*?)^```", pages.read("idleness"), re.MULTILINE | re.DOTALL)
    shown, waited = map(reader.type, block.splitlines())
    (row,) = [line.split() for line in shown.splitlines() if line.startswith(observed.namespace)]
    assert row == [observed.namespace, "notebook", "True", "2026-01-02T03:04:05Z"]
    assert "condition met" in waited
    assert typed("idleness") == ["kubectl get leases -n cotenant-system", "cotenant wake NAME"]
    assert "cotenant" in reader.type(typed("idleness")[0])


def _pod() -> Object:
    return {"containers": [{"name": "main", "image": "hollow"}], "terminationGracePeriodSeconds": 0}


def _deployment(name: str, annotations: dict[str, str]) -> Object:
    labels = {"app": name}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod()},
        },
    }
