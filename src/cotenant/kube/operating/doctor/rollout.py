"""Restarts Deployments of Cotenant itself, as `kubectl rollout restart` does: one pod after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from cotenant.core.checkup import NotRepaired
from cotenant.kube.api import resources
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.resources import PODS
from cotenant.kube.operating.doctor.facts import COMPONENT, NAME, Facts
from cotenant.kube.operating.doctor.subject import guard_of

DEPLOYMENTS = resources.DEPLOYMENTS.raw
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
_LONGEST = 120.0
"""Seconds to wait for a rollout."""
_LOOK = 1.0


async def restart(client: Client, facts: Facts, name: str) -> None:
    """Raises NotFound if there is no such Deployment, NotRepaired if it is not ours or is paused."""
    namespace = facts.installed.namespace
    found = await client.get(DEPLOYMENTS, name, namespace)
    if (found["metadata"].get("labels") or {}).get(NAME) != "cotenant":
        raise NotRepaired(f"the Deployment {namespace}/{name} is not Cotenant's")
    if found["spec"].get("paused"):
        raise NotRepaired(
            f"its rollout is paused; resume it: kubectl rollout resume -n {namespace} deployment/{name}"
        )
    mark = {"metadata": {"annotations": {_RESTARTED: facts.now.isoformat(timespec="seconds")}}}
    patch = {"spec": {"template": mark}}
    await client.merge_patch(DEPLOYMENTS, name, patch, namespace, guard=guard_of(found))


async def wait(client: Client, facts: Facts, name: str, clock: Callable[[], float] = time.monotonic) -> None:
    """Waits until all its pods are new and the old ones are gone. Raises NotRepaired after two minutes."""
    ends = clock() + _LONGEST
    while not await _is_over(client, facts, name):
        if clock() >= ends:
            raise NotRepaired(
                "the restart takes longer than expected; follow it: "
                f"kubectl rollout status -n {facts.installed.namespace} deployment/{name}"
            )
        await asyncio.sleep(_LOOK)


async def _is_over(client: Client, facts: Facts, name: str) -> bool:
    namespace = facts.installed.namespace
    if not is_done(await client.get(DEPLOYMENTS, name, namespace)):
        return False
    labels = f"{NAME}=cotenant,{COMPONENT}={name.removeprefix('cotenant-')}"
    pods = (await client.list(PODS, Selection(namespace, labels=labels))).items
    return all(pod.metadata.deletion_timestamp is None for pod in pods)


def is_done(found: dict[str, Any]) -> bool:
    """Whether `kubectl rollout status` would report success."""
    status, wanted = found.get("status") or {}, found["spec"].get("replicas", 1)
    return bool(
        status.get("observedGeneration", 0) >= found["metadata"].get("generation", 0)
        and status.get("updatedReplicas", 0) == wanted
        and status.get("replicas", 0) == wanted
        and status.get("availableReplicas", 0) == wanted
    )
