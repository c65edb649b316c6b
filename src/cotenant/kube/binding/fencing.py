"""Brings a pod into a state that no earlier Binding can change any more.

A Binding is guarded by the pod's resourceVersion. One that was sent and not answered may still lie in a
server's buffers when its sender is long dead. Any change of the pod makes it fail, and what is read then is
final.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from random import Random

from cotenant.dialects import names
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError, NotFound
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import PODS
from cotenant.kube.logs import get_logger

log = get_logger(__name__)

AT_ONCE = 32


async def fenced(client: Client, pod: Pod, within: float) -> Pod | None:
    """Returns the pod afterwards, None if it is gone. A KubeError means that the outcome is not known."""
    meta = pod.metadata
    changes = {"metadata": {"annotations": {names.RETRY: f"{time.time():.3f}"}}}
    try:
        return await client.merge_patch(
            PODS, meta.name, changes, meta.namespace, guard=Guard(meta.uid), within=within
        )
    except NotFound:
        return None
    except Conflict:
        try:
            now = await client.get(PODS, meta.name, meta.namespace, within=within)
        except NotFound:
            return None
        if now.metadata.uid != meta.uid:
            return None
        raise  # others write it all the time


async def fence_all(
    client: Client, pods: Iterable[Pod], seen: Callable[[Pod], object], while_: Callable[[], bool]
) -> None:
    """Fences every pod, with as many attempts as it takes while `while_` holds; `seen` gets the outcome."""
    waiting = iter(pods)

    async def worker() -> None:
        for pod in waiting:
            backoff = Backoff(0.1, 5.0, Random())
            while while_():
                try:
                    now = await fenced(client, pod, 5.0)
                except KubeError as error:
                    log.warning(
                        "pod not fenced",
                        namespace=pod.metadata.namespace,
                        pod=pod.metadata.name,
                        uid=pod.metadata.uid,
                        error=error,
                    )
                    await asyncio.sleep(backoff.next(error.retry_after))
                    continue
                if now is not None:
                    seen(now)
                break

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
