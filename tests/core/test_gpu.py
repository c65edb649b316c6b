"""A GPU is named as people name it: by index, by UUID, or by the beginning of a UUID."""

from __future__ import annotations

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU, begins, named

GI = 2**30
FIRST = GPU("GPU-5a3f0e1c-0000-4000-8000-000000000001", 0, "A100", 16 * GI)
SECOND = GPU("GPU-5a3f9999-0000-4000-8000-000000000002", 1, "A100", 16 * GI)
INSTANCE = GPU("MIG-7c000000-0000-4000-8000-000000000003", 12, "A100 1g.10gb", 10 * GI)
OLD_INSTANCE = GPU("MIG-GPU-9d000000-0000-4000-8000-000000000004/1/0", 13, "A100 1g.5gb", 5 * GI)
GPUS = (FIRST, SECOND, INSTANCE, OLD_INSTANCE)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("0", [FIRST]),
        ("12", [INSTANCE]),
        ("1", [SECOND]),
        ("2", []),
        (FIRST.uuid, [FIRST]),
        ("GPU-5a3f0", [FIRST]),
        ("5a3f9", [SECOND]),
        ("gpu-5A3F9", [SECOND]),
        ("GPU-5a3f", [FIRST, SECOND]),
        ("MIG-7", [INSTANCE]),
        ("7c0", [INSTANCE]),
        ("MIG-GPU-9d", [OLD_INSTANCE]),
        (OLD_INSTANCE.uuid, [OLD_INSTANCE]),
        ("GPU-", []),
        ("GPU", []),
        ("MIG-", []),
        ("", []),
        ("²", []),
        ("-1", []),
    ],
)
def test_what_a_word_means(asked: str, found: list[GPU]) -> None:
    assert named(asked, GPUS) == found


def test_a_uuid_that_another_one_begins_with_means_itself() -> None:
    short = GPU("GPU-5a3f", 7, "A100", GI)
    assert named("GPU-5a3f", [*GPUS, short]) == [short]
    assert begins(FIRST.uuid, "GPU-5a3f")


def test_a_demand_keeps_full_uuids_each_once() -> None:
    asked = Demand(Memory(bytes=GI), gpus=2, uuids=("0", "5a3f0", FIRST.uuid, "MIG-7"))
    assert asked.with_uuids_of(GPUS).uuids == (FIRST.uuid, INSTANCE.uuid)
    unknown = Demand(Memory(bytes=GI), uuids=("7", "GPU-nowhere"))
    assert unknown.with_uuids_of(GPUS) is unknown


def test_a_beginning_of_several_is_refused_with_what_there_is() -> None:
    with pytest.raises(BadInput, match=r"gpu: 5a3f is the beginning .*GPU 0.* or .*GPU 1"):
        Demand(Memory(bytes=GI), uuids=("5a3f",)).with_uuids_of(GPUS)
