"""The node's pods are read once for each change of them."""

from __future__ import annotations

from datetime import UTC, datetime

from kube.agent.nodes import GIB, A, pod
from msgspec.structs import replace

from cotenant.core.grant import Share
from cotenant.kube.agent.node_pods import NodePods, PodsNow
from cotenant.kube.api.objects import ContainerStatus, Pod, PodStatus
from cotenant.kube.api.store import Store

ID = "9f" * 32


def running(name: str, version: str = "1", phase: str = "Running") -> Pod:
    made = pod(name, ("main", Share(A, GIB)), uid=f"u-{name}")
    status = PodStatus(phase, container_statuses=(ContainerStatus("main", container_id=f"x://{ID}"),))
    return Pod(replace(made.metadata, resource_version=version), made.spec, status)


def test_it_is_the_same_object_until_a_pod_changes_and_then_shows_the_change() -> None:
    store = Store[Pod]()
    pods = NodePods(store)
    store.put(running("web"))
    first = pods.now()
    assert pods.now() is first
    store.put(running("web"))
    assert pods.now() is first, "the same version of a pod is no change"
    store.put(running("web", "2", "Failed"))
    assert pods.now() is not first
    assert (set(first.grants), set(pods.now().grants)) == ({"u-web"}, set())
    store.remove(running("web", "3"))
    assert pods.now().pods == ()


def test_it_reads_grants_ids_shares_and_workloads_of_pods() -> None:
    now = PodsNow((running("web"), running("job")))
    assert now.ids == {("u-web", "main"): ID, ("u-job", "main"): ID}
    assert [(share.name, share.memory) for share in now.shares[A]] == [("web", GIB), ("job", GIB)]
    assert now.workloads["u-web"].name == "web"


def test_pods_that_are_being_deleted_or_do_not_run_are_not_running() -> None:
    leaving = running("leaving")
    leaving = Pod(
        replace(leaving.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)),
        leaving.spec,
        leaving.status,
    )
    now = PodsNow((running("web"), running("new", phase="Pending"), leaving))
    assert [each.metadata.name for each, _ in now.running] == ["web"]
    assert set(now.grants) == {"u-web", "u-new", "u-leaving"}, "they hold their grants all the same"
