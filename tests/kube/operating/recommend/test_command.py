"""`kubectl cotenant recommend` in a cluster: Prometheus is found, pods are known, GPUs are counted."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
import yaml
from advice.backfilled import WEB, Backfilled
from kube.operating import clusters
from kube.operating.recommend.serving import own_address, serve

from cotenant.dialects import names
from cotenant.kube.api.resources import NAMESPACES, NODES, PODS

pytestmark = pytest.mark.asyncio
GI = 2**30


@pytest.fixture
def backfilled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backfilled]:
    server = Backfilled(tmp_path_factory.mktemp("prometheus"), own_address())
    server.start()
    yield server
    server.stop()


def ask(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HOME": str(kubeconfig.parent), "TZ": "UTC"}
    return warm.run(["recommend", "--kubeconfig", kubeconfig, *arguments], env=environ)


async def test_in_a_cluster(control_plane, first, client, namespace, backfilled: Backfilled) -> None:
    await serve(client, namespace, backfilled.address, backfilled.port)
    node = clusters.node("gpu-node", [80 * GI] * 4)
    await client.create(
        NODES.raw, {"metadata": {"name": "gpu-node", "annotations": node.metadata.annotations}}
    )
    await client.create(NAMESPACES, {"metadata": {"name": "team"}})
    limits = {"cotenant.dev/gpu-memory": "24Gi", "aliyun.com/gpu-mem": "24"}
    for last in "pqr":
        await client.create(PODS.raw, pod(f"web-{WEB}-x7k2{last}", limits), "team")
    kubeconfig = control_plane.kubeconfig(first[1])
    done = await until_found(kubeconfig)
    document = json.loads(done.stdout)
    assert document["source"] == f"service {namespace}/prometheus"
    (web,) = [each for each in document["advice"] if each["workload"].endswith("/web")]
    assert (web["workload"], web["now"], web["advised"]) == ("team/deployment/web", 24 * GI, 18 * GI)
    assert document["cards"]["there"] == 4
    (patch,) = yaml.safe_load_all(ask(kubeconfig, "-n", "team", "-o", "yaml", "web").stdout)
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"aliyun.com/gpu-mem": "18"}, "as the pod spells it"
    words = ("--prometheus", backfilled.url, "-n", "team", "-o", "yaml", "web")
    (outside,) = yaml.safe_load_all(ask(kubeconfig, *words).stdout)
    assert outside == patch, "the cluster is read too"
    table = ask(kubeconfig, "-A").stdout
    assert "GPUs: " in table
    assert "of 4 instead of" in table


def pod(name: str, limits: dict[str, str]) -> dict[str, Any]:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"web-{WEB}",
        "uid": "u-1",
        "controller": True,
    }
    return {
        "metadata": {
            "name": name,
            "labels": {"pod-template-hash": WEB},
            "annotations": {names.PLACEMENT: "frag"},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "server", "image": "i", "resources": {"limits": limits}}]},
    }


async def until_found(kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    """The API server's own cache of endpoints may be a little late."""
    for _ in range(60):
        done = await asyncio.to_thread(ask, kubeconfig, "-o", "json", "--min-history", "1d")
        if "no endpoints available" not in done.stderr:
            assert done.returncode == 0, done.stderr
            return done
        await asyncio.sleep(0.5)
    raise AssertionError(done.stderr)
