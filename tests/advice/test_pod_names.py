"""The workload of a pod, by the pod's name."""

from __future__ import annotations

import pytest

from cotenant.advice.pod_names import PodWorkload, workload_of


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("web-7d9f8c6b5d-x7k2p", PodWorkload("deployment", "web", "7d9f8c6b5d")),
        ("room-scene-68bd4c94d-zzxw4", PodWorkload("deployment", "room-scene", "68bd4c94d")),
        ("llm-0", PodWorkload("statefulset", "llm")),
        ("llm-shard-12", PodWorkload("statefulset", "llm-shard")),
        ("exporter-x7k2p", PodWorkload("pods", "exporter")),
        ("nightly-29034360-x7k2p", PodWorkload("cronjob", "nightly")),
        ("train", PodWorkload("pod", "train")),
        ("my-notebook", PodWorkload("pod", "my-notebook")),
    ],
)
def test_controllers_make_names_by_rules(pod: str, workload: PodWorkload) -> None:
    assert workload_of(pod) == workload


def test_a_workload_has_one_name() -> None:
    assert workload_of("web-7d9f8c6b5d-x7k2p").of("team") == "team/deployment/web"
