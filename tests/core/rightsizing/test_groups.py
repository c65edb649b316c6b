"""Which containers share one figure."""

from __future__ import annotations

import pytest
from core.rightsizing.made import group, track
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.rightsizing.groups import (
    MANY,
    Owner,
    by_column,
    look_like_instances,
    newest_versions,
    pooled,
)


@pytest.mark.parametrize(
    "names",
    [
        ["0f3a9c1d2e4b", "7b1c2d3e4f5a"],
        ["d41d8cd98f00b204e9800998ecf8427e"],
        ["10.0.3.7", "10.0.3.8", "10.1.0.255"],
        ["web-7d9f8c6b5d-x7k2p", "web-7d9f8c6b5d-bq4zn"],
        ["web-0", "web-1", "web-10"],
        ["worker1", "worker2"],
        ["1234", "99"],
        ["requests-0-003e8", "requests-1-003e8"],
        ["9b2e7c4e-1111-4222-8333-444455556666", "9b2e7c4e-1111-4222-8333-444455556667"],
        [f"container {sign}" for sign in "abcdefghij"],
    ],
)
def test_ids_addresses_pods_and_numbered_names_are_instances(names: list[str]) -> None:
    assert look_like_instances(names)


@pytest.mark.parametrize(
    "names",
    [
        ["server"],
        ["server", "tokenizer"],
        ["main", "sidecar", "metrics"],
        ["web", "web-proxy"],
        ["7b", "proxy"],
    ],
)
def test_names_of_a_pods_containers_are_not(names: list[str]) -> None:
    assert not look_like_instances(names)


def columns(**levels: float) -> dict[Owner, list]:
    return {Owner("w", "", name.replace("_", "-")): [track([level] * 5)] for name, level in levels.items()}


def test_instances_that_are_alike_share_one_figure() -> None:
    groups, taken = by_column(columns(web_0=100, web_1=104, web_2=98))
    assert [each.owner for each in groups] == [Owner("w")]
    assert groups[0].instances == ("web-0", "web-1", "web-2")
    assert taken == {"w": "instance"}


def test_instances_that_differ_get_their_own_and_know_the_others() -> None:
    groups, _ = by_column(columns(web_0=100, web_1=200))
    assert [each.owner.container for each in groups] == ["web-0", "web-1"]
    assert {each.siblings.before(9) for each in groups} == {200}


def test_names_get_their_own_and_know_nobody() -> None:
    groups, taken = by_column(columns(server=100, tokenizer=200))
    assert [each.siblings.before(9) for each in groups] == [100, 200]
    assert taken == {"w": "name"}


def test_the_meaning_can_be_forced() -> None:
    assert len(by_column(columns(web_0=100, web_1=100), "name")[0]) == 2
    assert len(by_column(columns(server=100, tokenizer=100), "instance")[0]) == 1


@given(st.lists(st.floats(1, 1e12), min_size=MANY + 1, max_size=60))
def test_of_very_many_only_those_are_siblings_that_hold_about_as_much(levels: list[float]) -> None:
    groups, _ = by_column({Owner("w", "", f"c-{at}"): [track([level])] for at, level in enumerate(levels)})
    assert sorted({name for each in groups for name in each.instances}) == sorted(
        f"c-{at}" for at in range(len(levels))
    )
    if len(groups) > 1:
        for each in groups:
            own = each.tracks[0].peak
            assert each.tracks[0] in each.siblings.tracks
            assert all(own / 1.31 <= other.peak <= own * 1.31 for other in each.siblings.tracks)


def test_two_gpus_of_one_container_are_one_instance() -> None:
    tracks = [track([5], "pod", gpu="GPU-1"), track([7], "pod", gpu="GPU-2")]
    (made,) = pooled({Owner("w", "", "main"): tracks})
    assert made.gpus == 2
    assert made.instances == ("pod",)


def test_a_pod_that_moves_to_another_gpu_has_one_at_a_time() -> None:
    moved = [track([5] * 50, "llm-0", gpu="GPU-1"), track([5] * 50, "llm-0", first=49, gpu="GPU-2")]
    assert pooled({Owner("w", "", "main"): moved})[0].gpus == 1
    both = [track([5] * 50, "llm-0", gpu="GPU-1"), track([5] * 50, "llm-0", first=20, gpu="GPU-2")]
    assert pooled({Owner("w", "", "main"): both})[0].gpus == 2
    short = [track([5], "run", gpu="GPU-1"), track([5], "run", gpu="GPU-2")]
    assert pooled({Owner("w", "", "main"): short})[0].gpus == 2


def test_only_the_version_that_ran_last_is_advised_and_knows_the_peak_before() -> None:
    old, new, canary = (
        group(track([9] * 20), workload="w"),
        group(track([5] * 5, first=20), workload="w"),
        group(track([6] * 4, first=20), workload="w"),
    )
    old, new, canary = (
        pooled({Owner("w", version, "main"): each.tracks})[0]
        for version, each in (("1", old), ("2", new), ("3", canary))
    )
    running, gone = newest_versions([old, new, canary], within=2)
    assert [each.owner.version for each in running] == ["2", "3"]
    assert [each.owner.version for each in gone] == ["1"]
    assert running[0].former == 9
