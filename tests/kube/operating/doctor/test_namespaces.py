"""Modes that do not exist, and quotas that count nothing."""

from kube.operating.well import kinds

from cotenant.dialects import names
from cotenant.kube.api.objects import Generic, Meta


def test_a_namespace_with_a_mode_that_does_not_exist_and_a_quota_that_counts_nothing():
    assert kinds(namespaces=(Meta(name="x", labels={names.ENFORCE: "maybe"}),)) == ["bad-mode"]
    hard = {names.GPU_MEMORY: "40Gi", "requests.cotenant.dev/gpu": "1", "limits.cotenant.dev/gpu": "1"}
    quota = Generic(Meta(name="q", namespace="x"), spec={"hard": hard})
    assert kinds(quotas=(quota,)) == ["quota-not-counted"] * 2


def test_a_namespace_that_evicts_by_a_word_that_is_not_known():
    labelled = Meta(name="x", labels={names.EVICT_OVER_LIMIT: "yes"})
    assert kinds(namespaces=(labelled,)) == ["bad-eviction"]
    assert kinds(namespaces=(Meta(name="x", labels={names.EVICT_OVER_LIMIT: "on"}),)) == []
