"""The patches of `cotenant recommend -o yaml`, given to a real API server as kubectl gives them."""

from __future__ import annotations

import pytest
import yaml
from advice.reports import gathered, report

from cotenant.advice.patches import Spelling, patches
from cotenant.kube.api.resources import DEPLOYMENTS

pytestmark = pytest.mark.asyncio


async def test_a_deployment_takes_them(client, namespace) -> None:
    deployments = DEPLOYMENTS.raw
    asked = {"nvidia.com/gpu": "1", "cpu": "1"}
    containers = [
        {"name": "server", "image": "i", "resources": {"limits": asked, "requests": asked}},
        {"name": "draft", "image": "i"},
    ]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    body = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    await client.create(deployments, body, namespace)
    name = f"{namespace}/deployment/web"
    advice = report(gathered(web=name)).advice
    text = patches(advice, {(name, "server"): Spelling(removed=("nvidia.com/gpu",))})
    (patch,) = [each for each in yaml.safe_load_all(text) if each]
    await client.merge_patch(deployments, "web", patch, namespace, strategic=True)
    found = await client.get(deployments, "web", namespace)
    server, draft = found["spec"]["template"]["spec"]["containers"]
    wanted = {"cpu": "1", "cotenant.dev/gpu-memory": "18Gi"}
    assert server["resources"] == {"limits": wanted, "requests": wanted}
    assert server["image"] == "i"
    assert draft["resources"] == {}


async def test_applied_what_is_replaced_stays_at_zero(client, namespace) -> None:
    """As `kubectl apply --server-side --force-conflicts` sends them."""
    deployments = DEPLOYMENTS.raw
    asked = {"nvidia.com/gpu": "1", "cpu": "1"}
    resources = {"limits": asked, "requests": asked}
    spec = {"containers": [{"name": "server", "image": "i", "resources": resources}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    body = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    await client.create(deployments, body, namespace)
    name = f"{namespace}/deployment/web"
    text = patches(
        report(gathered(web=name)).advice, {(name, "server"): Spelling(removed=("nvidia.com/gpu",))}
    )
    (patch,) = [each for each in yaml.safe_load_all(text) if each]
    await client.apply(deployments, patch, "kubectl", namespace, force=True)
    found = await client.get(deployments, "web", namespace)
    (server,) = found["spec"]["template"]["spec"]["containers"]
    wanted = {"cpu": "1", "cotenant.dev/gpu-memory": "18Gi", "nvidia.com/gpu": "0"}
    assert server["resources"] == {"limits": wanted, "requests": wanted}
