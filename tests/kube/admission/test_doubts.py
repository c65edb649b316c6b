"""What was probably not meant is refused or warned of at admission, with what was probably meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import pytest
from kube.admitted import FORGED, admitted
from kube.builders import GI, container, pod

from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission import doubts

GIB = Dialects()


@pytest.mark.parametrize(
    ("amount", "meant"),
    [("4", "4Gi"), (4, "4Gi"), ("24", "24Gi"), ("512", "512Gi or 512Mi"), ("3803", "3803Mi")],
)
@pytest.mark.parametrize("place", ["main", "init", "sidecar"])
def test_memory_without_a_unit_is_refused(amount: object, meant: str, place: str) -> None:
    asking = container("it", sidecar=place == "sidecar", memory=amount)
    body = pod(asking) if place == "main" else pod(container("main"), init=[asking])
    with pytest.raises(BadInput) as error:
        admitted(body)
    assert str(error.value).startswith("container 'it': cotenant.dev/gpu-memory: ")
    assert str(error.value).endswith(f"did you mean {meant}?")


def test_bytes_that_are_meant_as_bytes_are_admitted() -> None:
    assert admitted(pod(container("it", memory="4294967296"))).demand.memory == 4 * GI
    assert admitted(pod(container("it", memory="4Ki"))).warnings == ()


def test_mebibytes_where_gibibytes_are_counted_are_refused_with_the_setting() -> None:
    with pytest.raises(
        BadInput, match=r"aliyun.com/gpu-mem: 3803 is 3.7Ti on one GPU, .*dialects.aliyun.unit to MiB"
    ):
        admitted(pod(container("it", **{"aliyun.com/gpu-mem": 3803})), dialects=GIB)
    mutation = admitted(pod(container("it", **{"aliyun.com/gpu-mem": 512})), dialects=GIB)
    assert "512Gi on one GPU" in mutation.warnings[0]
    assert admitted(pod(container("it", **{"aliyun.com/gpu-mem": 24})), dialects=GIB).warnings == ()


def test_bytes_where_mebibytes_are_counted_are_refused_with_the_setting() -> None:
    with pytest.raises(
        BadInput, match=r"4Pi on one GPU, more than any has: volcano.sh/gpu-memory is in 1 MiB here"
    ):
        admitted(pod(container("it", **{"volcano.sh/gpu-memory": 2**32})))


def test_more_memory_than_any_gpu_has_is_warned_of() -> None:
    (warning,) = admitted(pod(container("it", memory="4Ti"))).warnings
    assert "4Ti on one GPU, more than any has" in warning
    spread = pod(container("it", memory="1Ti"), annotations={"gpu-count.cotenant.dev/it": "8"})
    assert admitted(spread).warnings == ()


def test_what_was_admitted_is_not_questioned_again() -> None:
    body = admitted(pod(container("it", **{"aliyun.com/gpu-mem": 512})), dialects=GIB)
    assert body.warnings
    assert admitted(body.pod, dialects=GIB).warnings == ()


@pytest.mark.parametrize(
    ("annotation", "meant"),
    [
        ("cotenant.dev/gpu-modle", "cotenant.dev/gpu-model"),
        ("cotenant.dev/gpu_model", "cotenant.dev/gpu-model"),
        ("cotenant.dev/GPU-Model", "cotenant.dev/gpu-model"),
        ("cotenant.dev/gpu-models", "cotenant.dev/gpu-model"),
        ("cotenant.dev/gpu-uid", "cotenant.dev/gpu-uuid"),
        ("cotenant.dev/placment", "cotenant.dev/placement"),
        ("cotenant.dev/enforced", "cotenant.dev/enforce"),
        ("cotenant.dev/gpu-count", "gpu-count.cotenant.dev/main"),
        ("gpu-counts.cotenant.dev/main", "gpu-count.cotenant.dev/main"),
        ("gpucount.cotenant.dev/main", "gpu-count.cotenant.dev/main"),
    ],
)
def test_a_misspelt_annotation_is_refused(annotation: str, meant: str) -> None:
    with pytest.raises(BadInput) as error:
        admitted(pod(container("main", memory="4Gi"), annotations={annotation: "1"}))
    assert str(error.value) == f"annotation {annotation} is not known: did you mean {meant}?"


@pytest.mark.parametrize("resource", ["gpu-memory", "gpu-compute", "gpu"])
def test_a_resource_among_annotations_is_refused(resource: str) -> None:
    body = pod(container("main", memory="4Gi"), annotations={f"cotenant.dev/{resource}": "8Gi"})
    with pytest.raises(BadInput, match=r"this is a resource: write it under a container's resources.limits"):
        admitted(body)


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("cotenant.dev/owner", "annotation cotenant.dev/owner is not known and has no effect"),
        ("other.cotenant.dev/main", "annotation other.cotenant.dev/main is not known and has no effect"),
        ("cotenent.dev/gpu-model", "did you mean cotenant.dev/gpu-model?"),
    ],
)
def test_what_may_be_meant_for_somebody_else_is_warned_of(annotation: str, words: str) -> None:
    (warning,) = admitted(pod(container("main", memory="4Gi"), annotations={annotation: "1"})).warnings
    assert words in warning


def test_a_wish_that_is_a_label_is_warned_of() -> None:
    body = pod(container("main", memory="4Gi"))
    body["metadata"]["labels"] = {"cotenant.dev/gpu-model": "A100", "app": "it"}
    (warning,) = admitted(body).warnings
    assert warning == "label cotenant.dev/gpu-model has no effect: write it as an annotation"


def test_what_is_right_is_not_questioned() -> None:
    wishes = {
        "cotenant.dev/gpu-model": "A100",
        "cotenant.dev/gpu-uuid": "GPU-1",
        "cotenant.dev/placement": "spread",
        "cotenant.dev/enforce": "warn",
        "gpu-count.cotenant.dev/main": "2",
        "example.com/gpu-model": "mine",
        "note": "mine",
    }
    assert admitted(pod(container("main", memory="4Gi"), annotations={**wishes, **FORGED})).warnings == ()


def test_warnings_are_few_and_short_whatever_is_written() -> None:
    annotations = {f"cotenant.dev/{at}\n" + "x" * 3_000: "" for at in range(50)}
    warnings = admitted(pod(container("main", memory="4Gi"), annotations={**annotations})).warnings
    assert len(warnings) == 8
    assert all(len(each) < 200 and each.isprintable() for each in warnings)


@pytest.mark.parametrize("name", ["cotenant.dev/{}", "{}.cotenant.dev/it", "{}.dev/gpu-model"])
def test_only_some_of_many_unknown_names_are_compared_with_ours(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing all of them would keep the server from answering anybody for seconds."""
    compared = list[str]()

    def counted(word: str, *others: Any) -> list[str]:
        compared.append(word)
        return get_close_matches(word, *others)

    monkeypatch.setattr(doubts, "get_close_matches", counted)
    annotations = {name.format(f"{at:05}"): "" for at in range(8000)}
    admitted(pod(container("main", memory="4Gi"), annotations=annotations))
    assert 0 < len(set(compared)) <= 64


def _many(count: int, **asked: Any) -> dict[str, Any]:
    return pod(container("main", **asked), *(container(f"c{at}") for at in range(count - 1)))


def test_a_pod_with_gpu_has_no_more_containers_than_servers_can_keep() -> None:
    assert admitted(_many(256, memory="1Gi")).patch
    assert admitted(_many(2000)).patch == []
    with pytest.raises(BadInput, match=r"257 containers: a pod that requests a GPU has at most 256"):
        admitted(_many(257, memory="1Gi"))
