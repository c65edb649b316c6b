"""What is exported of containers: nothing twice, nothing without bounds, and sums that add up to the GPU's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from cotenant.core.gpu import GPU
from cotenant.observe import view_metrics
from cotenant.observe.text_format import text_of_families
from cotenant.observe.view import GpuView, GrantView, NodeView, ShareView, View, WorkloadView
from cotenant.observe.view_metrics import LONGEST_LABEL, of_containers, of_gpus

GIB = 2**30
NOW = 1.8e9


def grant(name="a", *shares: ShareView, namespace="web", container="main", uid="", **more) -> GrantView:
    return GrantView(uid or f"uid-{name}", name, shares, namespace, container=container, **more)


def share(uuid="GPU-0", limit=4 * GIB, used=0, peak=0, utilization=None) -> ShareView:
    return ShareView("u", "a", uuid, limit, used=used, peak=peak, utilization=utilization)


def view(*grants: GrantView, others=(), used: dict[str, int] | None = None, workloads=None, **of_gpu) -> View:
    gpus = tuple(
        GpuView(GPU(uuid, at, "T4", 16 * GIB), "n1", used=size, **of_gpu)
        for at, (uuid, size) in enumerate((used or {"GPU-0": 8 * GIB}).items())
    )
    return View((NodeView("n1", gpus),), grants, others=tuple(others), workloads=workloads or {})


def read(shown: View) -> dict[str, dict[tuple[str, ...], float]]:
    """Value by name and by the values of the labels, sorted by label; fails if a series is there twice."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    text = text_of_families((*of_gpus(shown), *of_containers(shown, NOW))).decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in sorted(sample.labels))
            assert labels not in found.setdefault(sample.name, {}), "one figure, one line"
            found[sample.name][labels] = sample.value
    return found


def by_gpu(read: dict[tuple[str, ...], float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for labels, value in read.items():
        found[labels[-1]] = found.get(labels[-1], 0) + value
    return found


def test_a_container_tells_its_workload_and_what_holds_it():
    made = grant(
        "web-7d9-x",
        share(),
        enforcer="shim",
        enforcer_asked="driver",
        mode="warn",
    )
    workloads = {"uid-web-7d9-x": WorkloadView("web", "Deployment", "7d9")}
    told = read(view(made, grant("b", share(), mode="observe"), workloads=workloads))
    assert told["cotenant_container_info"] == {
        ("main", "web", "web-7d9-x", "7d9", "web", "Deployment"): 1,
        ("main", "web", "b", "", "", ""): 1,
    }
    assert told["cotenant_container_enforcer_info"] == {
        ("shim", "driver", "main", "warn", "web", "web-7d9-x"): 1,
        ("unknown", "unknown", "main", "observe", "web", "b"): 1,
    }


def test_a_container_without_a_grant_has_use_and_no_limit():
    other = grant("sliced", share(limit=0, used=3 * GIB, peak=5 * GIB, utilization=40))
    told = read(view(grant("a", share(used=GIB)), others=[other]))
    whose = ("main", "web", "sliced", "GPU-0")
    assert whose not in told["cotenant_container_memory_limit_bytes"]
    assert told["cotenant_container_memory_used_bytes"][whose] == 3 * GIB
    assert told["cotenant_container_memory_peak_bytes"][whose] == 5 * GIB
    assert told["cotenant_container_utilization_ratio"][whose] == 0.4
    assert ("main", "web", "sliced") not in told["cotenant_container_denied_allocations_total"]
    assert ("none", "none", "main", "", "web", "sliced") in told["cotenant_container_enforcer_info"]
    assert told["cotenant_gpu_memory_outside_bytes"] == {("0", "T4", "n1", "GPU-0"): 4 * GIB}


def test_what_is_beyond_the_grant_is_told_by_what_is_used_or_by_what_the_driver_saw():
    told = read(
        view(
            grant("a", share(used=5 * GIB), share("GPU-1", 2 * GIB, used=GIB)),
            grant("b", share(used=GIB), over_bytes=7),
            grant("c", share(used=GIB)),
        )
    )["cotenant_container_memory_over_bytes"]
    assert told == {("main", "web", "a"): GIB, ("main", "web", "b"): 7, ("main", "web", "c"): 0}


def test_a_drained_gpu_has_no_free_memory_and_is_healthy():
    told = read(view(drained=True))
    gpu = ("0", "T4", "n1", "GPU-0")
    assert told["cotenant_gpu_memory_free_bytes"] == {gpu: 0}
    assert told["cotenant_gpu_healthy"] == {gpu: 1}


def test_a_pod_made_anew_under_its_name_is_one_series_with_the_memory_of_both():
    old = grant("a", share(used=2 * GIB, peak=4 * GIB), uid="old", denied=9, mode="warn")
    new = grant("a", share(used=GIB, peak=GIB), uid="new", denied=1, mode="enforce")
    told = read(view(old, new))
    assert told["cotenant_container_memory_used_bytes"] == {("main", "web", "a", "GPU-0"): 3 * GIB}
    assert told["cotenant_container_memory_limit_bytes"] == {("main", "web", "a", "GPU-0"): 8 * GIB}
    assert told["cotenant_container_memory_peak_bytes"] == {("main", "web", "a", "GPU-0"): 4 * GIB}
    assert told["cotenant_container_denied_allocations_total"] == {("main", "web", "a"): 1}
    told = read(view(new, others=[grant("a", share(limit=0, used=GIB))]))
    assert told["cotenant_container_memory_used_bytes"] == {("main", "web", "a", "GPU-0"): 2 * GIB}
    assert told["cotenant_container_memory_limit_bytes"] == {("main", "web", "a", "GPU-0"): 4 * GIB}
    damaged = [grant("", share(used=GIB), namespace="", container="", uid=uid) for uid in "xyz"]
    assert by_gpu(read(view(*damaged))["cotenant_container_memory_used_bytes"]) == {"GPU-0": 3 * GIB}


def test_names_that_are_too_long_are_cut_stay_apart_and_are_counted():
    owner = "o" * 300
    made = [grant("p" * 300 + end, share(), uid=end) for end in ("x", "y")]
    workload = WorkloadView(owner, "k" * 999, "v")
    told = read(view(*made, workloads={"x": workload, "y": workload}))
    assert len(told["cotenant_container_memory_limit_bytes"]) == 2
    labels = [label for each in told["cotenant_container_info"] for label in each]
    assert max(map(len, labels)) == LONGEST_LABEL
    assert told["cotenant_metrics_cut"] == {("containers",): 0, ("labels",): 6}


def test_too_many_containers_are_cut_and_counted_and_those_with_a_grant_come_first(monkeypatch):
    monkeypatch.setattr(view_metrics, "MOST_CONTAINERS", 10)
    others = [grant(f"o{at}", share(limit=0, used=1)) for at in range(20)]
    told = read(view(*(grant(f"g{at}", share()) for at in range(8)), others=others))
    names = {labels[2] for labels in told["cotenant_container_info"]}
    assert len(names) == 10
    assert sum(name.startswith("g") for name in names) == 8
    assert told["cotenant_metrics_cut"][("containers",)] == 18


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["GPU-0", "GPU-1"]), st.integers(0, GIB), st.booleans()
        ),
        max_size=12,
    ),
    st.integers(0, 4 * GIB),
)
def test_containers_and_outside_add_up_to_what_is_in_use(made, outside):
    grants = [grant(name, share(uuid, GIB, used)) for name, uuid, used, granted in made if granted]
    others = [grant(name, share(uuid, 0, used)) for name, uuid, used, granted in made if not granted]
    used = {uuid: outside + sum(size for _, on, size, _ in made if on == uuid) for uuid in ("GPU-0", "GPU-1")}
    told = read(view(*grants, others=others, used=used))
    sums = by_gpu(told.get("cotenant_container_memory_used_bytes", {}))
    for uuid, size in by_gpu(told["cotenant_gpu_memory_outside_bytes"]).items():
        assert size + sums.get(uuid, 0) == used[uuid]


def test_a_gpu_whose_use_is_not_known_has_no_use_and_no_outside():
    shown = view(grant("a", share()))
    (node,) = shown.nodes
    unknown = replace(node, gpus=tuple(replace(each, used=None) for each in node.gpus))
    told = read(replace(shown, nodes=(unknown,)))
    assert "cotenant_gpu_memory_used_bytes" not in told
    assert "cotenant_gpu_memory_outside_bytes" not in told


@pytest.mark.parametrize("idle", [None, 30.0])
def test_last_activity_is_a_time_and_absent_before_the_first(idle):
    told = read(view(grant("a", share(), idle_seconds=idle)))
    expected = {} if idle is None else {("main", "web", "a"): NOW - 30}
    assert told.get("cotenant_container_last_activity_timestamp_seconds", {}) == expected
