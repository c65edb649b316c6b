"""Which pods may be evicted so that others get their room, and why the others stay."""

import msgspec
import pytest
from kube.operating.clusters import GI, pod

from cotenant.kube.api.objects import Generic
from cotenant.kube.operating.defrag.budgets import Budget, read_budget
from cotenant.kube.operating.defrag.movable import SAFE_TO_EVICT, PlacementSpec, why_it_stays
from cotenant.kube.pods.demand import MIRROR

OWNER = {"kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": True}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}
OPEN = Budget("team", "open", None, 1)


def owned(kind="ReplicaSet", annotations=None, **metadata):
    owner = {**OWNER, "kind": kind}
    return pod(
        "web", 4 * GI, on="n1", annotations=annotations, metadata={"ownerReferences": [owner], **metadata}
    )


def spec(**fields):
    return msgspec.convert(fields, PlacementSpec)


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "Job", "ReplicationController", "Rollout"])
def test_a_pod_with_a_controller_may_be_moved(kind):
    assert why_it_stays(owned(kind), spec(), []) == ""
    assert why_it_stays(owned(kind), spec(), [OPEN]) == ""


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (pod("bare", 4 * GI, on="n1"), "has no controller"),
        (owned("DaemonSet"), "belongs to its node"),
        (owned("Node"), "belongs to its node"),
        (owned(annotations={MIRROR: "x"}), "belongs to its node"),
        (owned(annotations={SAFE_TO_EVICT: "false"}), "is kept by its annotation"),
        (owned(deletionTimestamp="2026-03-01T12:00:00Z"), "is being deleted"),
    ],
)
def test_these_stay(one, said):
    assert said in why_it_stays(one, spec(), [])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"affinity": {"podAntiAffinity": REQUIRED}}, "podAntiAffinity"),
        ({"affinity": {"podAffinity": REQUIRED}}, "podAffinity"),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints",
        ),
        ({"containers": [{"ports": [{"hostPort": 80}]}]}, "a port of its node"),
        ({"resourceClaims": [{"name": "x"}]}, "resource claims"),
    ],
)
def test_one_stays_if_we_cannot_say_where_it_would_go(fields, said):
    assert said in why_it_stays(owned(), spec(**fields), [])
    assert said in why_it_stays(owned(annotations={SAFE_TO_EVICT: "true"}), spec(**fields), [])


@pytest.mark.parametrize(
    "fields",
    [
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"containers": [{"ports": [{"containerPort": 80}]}]},
        {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]},
        {"nodeSelector": {"a": "b"}},
    ],
)
def test_what_is_only_preferred_and_what_we_judge_ourselves_keeps_nobody(fields):
    assert why_it_stays(owned(), spec(**fields), []) == ""


@pytest.mark.parametrize("kind", ["persistentVolumeClaim", "hostPath"])
def test_one_with_a_volume_stays_unless_its_author_says_otherwise(kind):
    fields = {"volumes": [{"name": "data", kind: {}}]}
    assert "its volumes may tie it" in why_it_stays(owned(), spec(**fields), [])
    assert why_it_stays(owned(annotations={SAFE_TO_EVICT: "true"}), spec(**fields), []) == ""


def test_a_budget_that_is_used_up_and_several_budgets_keep_it():
    used_up = Budget("team", "web", None, 0)
    assert "PodDisruptionBudget team/web allows no eviction now" in why_it_stays(owned(), spec(), [used_up])
    assert "several PodDisruptionBudgets" in why_it_stays(owned(), spec(), [OPEN, OPEN])


def budget(selector, allowed=1, generation=2, observed=2):
    return read_budget(
        msgspec.convert(
            {
                "metadata": {"name": "b", "namespace": "team", "generation": generation},
                "spec": {} if selector is None else {"selector": selector},
                "status": {"disruptionsAllowed": allowed, "observedGeneration": observed},
            },
            Generic,
        )
    )


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, True),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}, False),
        ({}, True),
        ({"matchLabels": {}}, True),
        (None, False),
    ],
)
def test_a_budget_covers_what_its_selector_selects_and_an_empty_one_all(selector, covers):
    assert budget(selector).covers("team", {"app": "web"}) is covers
    assert not budget(selector).covers("other", {"app": "web"})


def test_a_budget_whose_status_is_of_an_earlier_spec_allows_nothing():
    assert budget({}).allowed == 1
    assert budget({}, observed=1).allowed == 0
