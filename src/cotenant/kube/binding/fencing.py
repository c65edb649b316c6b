"""Brings pods into a state that no earlier Binding can change any more.

A Binding is guarded by the pod's resourceVersion. One that was sent and not answered may still lie in a
server's buffers when its sender is long dead. Any change of the pod, by anybody, makes it fail, and what is
read then is final. So the pod is annotated.

An API server may refuse that for ever: a policy denies the update, or the pod's annotations are as large as
they may be. Then the Binding's own time limit is waited out, the pod is read by quorum, and it counts as not
bound. It stays unfenced: it is not bound until something has changed it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from cotenant.dialects import names
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import KubeError, NotFound
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import PODS
from cotenant.kube.logs import get_logger

log = get_logger(__name__)

AT_ONCE = 32
SHORTEST, LONGEST = 1.0, 5.0
"""Seconds for one request: first short, then twice as long in each round. A policy's webhook that hangs is
not to cost five seconds for each of a thousand pods.
"""
BINDING_OVER = 5.0
"""Seconds after which an API server that answers has given up every Binding that it got before: each carries
a time limit of 4 s (`binder.WITHIN`), which the API server keeps.
"""


class NotChanged(KubeError):
    """The API server answers, but refuses to change the pod, and nobody else has changed it."""

    def __init__(self, pod: Pod, refusal: KubeError) -> None:
        super().__init__(str(refusal), code=refusal.code, retry_after=refusal.retry_after)
        self.pod = pod
        """As it was read by quorum after the refusal."""


Seen = Callable[[str, Pod | None, NotChanged | None], object]
"""Gets the UID of a pod and its state, None if it is gone; with NotChanged if an earlier Binding can only be
taken to be over by its time limit.
"""


async def fenced(client: Client, pod: Pod, within: float) -> Pod | None:
    """Changes the pod, or sees that somebody has since it was in this state. Returns the pod afterwards, None
    if it is gone. NotChanged: it is as it was. Any other KubeError: nothing is known.
    """
    meta = pod.metadata
    changes = {"metadata": {"annotations": {names.RETRY: f"{time.time():.3f}"}}}
    try:
        return await client.merge_patch(
            PODS, meta.name, changes, meta.namespace, guard=Guard(meta.uid), within=within
        )
    except NotFound:
        return None
    except KubeError as error:
        try:
            now = await client.get(PODS, meta.name, meta.namespace, within=within)
        except NotFound:
            return None
        if now.metadata.uid != meta.uid:
            return None
        if now.spec.node_name or now.metadata.resource_version != meta.resource_version:
            return now
        raise NotChanged(now, error) from None


@dataclass
class _Open:
    """A pod that is not fenced yet."""

    pod: Pod
    error: KubeError | None = None
    answered: float | None = None
    """By the loop's clock, since when every read of it was answered."""


async def fence_all(
    client: Client,
    pods: Iterable[Pod],
    seen: Seen,
    while_: Callable[[], bool],
    report: Callable[[int, KubeError | None], object] = lambda *_: None,
    random: Random | None = None,
) -> None:
    """Fences every pod, with as many attempts as it takes while `while_` holds. After each round `report`
    gets how many are left, and one of the errors. All wait for their Bindings' time limit together.
    """
    left = [_Open(pod) for pod in pods]
    backoff, within = Backoff(0.1, 5.0, random or Random()), SHORTEST
    while left and while_():
        await _round(client, left, seen, while_, within)
        within = min(2 * within, LONGEST)
        left = [each for each in left if each.error is not None]
        report(len(left), left[0].error if left else None)
        if not left or not while_():
            return
        meta, error = left[0].pod.metadata, left[0].error
        log.warning(
            "pods not fenced yet",
            pods=len(left),
            namespace=meta.namespace,
            pod=meta.name,
            uid=meta.uid,
            error=error,
        )
        await asyncio.sleep(backoff.next(error.retry_after if error is not None else None))


async def _round(
    client: Client, pods: Iterable[_Open], seen: Seen, while_: Callable[[], bool], within: float
) -> None:
    """Tries each pod once, and leaves an error at those that are still open."""
    waiting = iter(pods)
    await asyncio.gather(*(_work(client, waiting, seen, while_, within) for _ in range(AT_ONCE)))


async def _work(
    client: Client, waiting: Iterator[_Open], seen: Seen, while_: Callable[[], bool], within: float
) -> None:
    clock = asyncio.get_running_loop().time
    for each in waiting:
        uid, asked = each.pod.metadata.uid, clock()
        if not while_():
            return
        try:
            now = await fenced(client, each.pod, within)
        except NotChanged as error:
            each.error = error
            if each.answered is None:
                each.answered = clock()
            elif asked - each.answered >= BINDING_OVER:
                each.error = None
                seen(uid, error.pod, error)
        except KubeError as error:
            each.error, each.answered = error, None
        else:
            each.error = None
            seen(uid, now, None)
