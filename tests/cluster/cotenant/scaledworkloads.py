"""A hundred workloads that are scaled: some by a GpuScaler over a queue, others by their annotation alone."""

import random
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cluster.testbed.api import Api, Object, Refused

from cotenant.dialects import names
from cotenant.kube.scaler.definition import definition

from .manifests import container, pod

GROUPS = {
    "Deployment": "apps",
    "StatefulSet": "apps",
    "ReplicaSet": "apps",
    "ReplicationController": "",
}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "group"
"""The consumer group of every stream."""
MESSAGE_SECONDS = 2.0
"""What a message takes by the word of the scalers' authors."""


@dataclass(frozen=True)
class ScaledWorkload:
    name: str
    kind: str
    least: int
    most: int
    """Without a queue: what it has while it is not released."""
    threshold: int
    """Seconds."""
    queue: str = ""
    """`list` or `stream`; empty: there is no GpuScaler, only the annotation."""

    @property
    def api_version(self) -> str:
        return f"{GROUPS[self.kind]}/v1".removeprefix("/")

    def path(self, namespace: str) -> str:
        return f"{kind_path(self.kind, namespace)}/{self.name}"

    def body(self) -> Object:
        """Begins with `most` where nothing else says how many there should be."""
        labels = {"app": self.name}
        notes = {} if self.queue else {names.SCALE_DOWN_THRESHOLD: f"{self.threshold}s"}
        spec = pod("", container(memory="4Gi"))["spec"]
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": self.name, "annotations": notes},
            "spec": {
                "replicas": max(1, self.least) if self.queue else self.most,
                "selector": labels if self.kind == "ReplicationController" else {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
                **({"podManagementPolicy": "Parallel"} if self.kind == "StatefulSet" else {}),
            },
        }

    def scaler(self, redis: str) -> Object:
        """`redis`: the URL of the server that has its queue."""
        if self.queue == "list":
            queue: Object = {
                "redis": {"url": redis, "list": self.name},
                "inFlight": {"list": f"{self.name}:work"},
            }
        else:
            queue = {"redis": {"url": redis, "stream": self.name, "group": GROUP}}
        return {
            "apiVersion": "cotenant.dev/v1alpha1",
            "kind": "GpuScaler",
            "metadata": {"name": self.name},
            "spec": {
                "target": {"apiVersion": self.api_version, "kind": self.kind, "name": self.name},
                "replicas": {"min": self.least, "max": self.most},
                "backlog": {"queue": queue, "processingTime": {"fixed": f"{MESSAGE_SECONDS:g}s"}},
                "scaleDownThreshold": f"{self.threshold}s",
            },
        }


def some_of_each(scalers: int, annotated: int, chance: random.Random) -> list[ScaledWorkload]:
    """Every kind with every queue and with none."""
    kinds = sorted(GROUPS)
    made = []
    for number in range(scalers):
        least = chance.choice((0, 0, 0, 1))
        made.append(
            ScaledWorkload(
                f"queue-{number:02}",
                kinds[number % 4],
                least,
                least + chance.randint(1, 3),
                chance.randint(8, 12),
                ("list", "stream")[number // 4 % 2],
            )
        )
    made += [
        ScaledWorkload(
            f"noted-{number:02}", kinds[number % 4], 0, chance.randint(1, 2), chance.randint(8, 12)
        )
        for number in range(annotated)
    ]
    return made


def kind_path(kind: str, namespace: str) -> str:
    group = GROUPS[kind]
    return f"{f'/apis/{group}' if group else '/api'}/v1/namespaces/{namespace}/{kind.lower()}s"


def scalers_path(namespace: str) -> str:
    return f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}/gpuscalers"


def define_scalers(api: Api) -> None:
    """Ready to be created when this returns."""
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gpuscalers.cotenant.dev"},
        "spec": definition(),
    }
    try:
        api.create(DEFINITIONS, body)
    except Refused as refused:
        if refused.code != 409:
            raise
    end = time.monotonic() + 30
    while True:
        try:
            api.get("/apis/cotenant.dev/v1alpha1/gpuscalers")
        except Refused as refused:
            if refused.code not in (404, 429) or time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def create_all(api: Api, namespace: str, workloads: Sequence[ScaledWorkload], redis: str) -> None:
    def create(each: ScaledWorkload) -> None:
        api.create(kind_path(each.kind, namespace), each.body())
        if each.queue:
            api.create(scalers_path(namespace), each.scaler(redis))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, workloads))


def by_name(workloads: Iterable[ScaledWorkload]) -> dict[str, ScaledWorkload]:
    return {each.name: each for each in workloads}
