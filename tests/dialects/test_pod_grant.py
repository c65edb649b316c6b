"""A grant annotation is read back exactly, or refused and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.errors import CotenantError
from cotenant.core.grant import Grant, Share
from cotenant.dialects.pod_grant import GrantUnreadable, PodGrant, SlotGrant, read_grant, write_grant

GI = 2**30
UID = "0b8a4f7e-6a7e-4c8e-9d5b-3f1a2b3c4d5e"
GRANT = PodGrant(
    UID,
    (
        SlotGrant("main", (Share("GPU-1", 4 * GI, 30), Share("GPU-2", 4 * GI, 30)), ("fetch", "warm")),
        SlotGrant("side", (Share("GPU-1", 80 * GI, whole=True),)),
    ),
)


def body(**changes: Any) -> dict[str, Any]:
    return {**json.loads(write_grant(GRANT)), **changes}


def test_it_is_read_back() -> None:
    assert read_grant(write_grant(GRANT), UID) == GRANT


def test_it_says_version_uid_containers_and_shares() -> None:
    assert json.loads(write_grant(GRANT)) == {
        "version": 1,
        "uid": UID,
        "slots": [
            {
                "container": "main",
                "init": ["fetch", "warm"],
                "shares": [
                    {"uuid": "GPU-1", "memory": 4 * GI, "compute": 30},
                    {"uuid": "GPU-2", "memory": 4 * GI, "compute": 30},
                ],
            },
            {"container": "side", "shares": [{"uuid": "GPU-1", "memory": 80 * GI, "whole": True}]},
        ],
    }


def test_the_ledger_is_charged_by_slot() -> None:
    assert GRANT.charges == (
        Grant(f"{UID}/main", GRANT.slots[0].shares),
        Grant(f"{UID}/side", GRANT.slots[1].shares),
    )


def test_init_containers_find_the_slot_they_use() -> None:
    assert GRANT.slot_of("fetch") is GRANT.slots[0]
    assert GRANT.slot_of("main") is GRANT.slots[0]
    assert GRANT.slot_of("side") is GRANT.slots[1]
    assert GRANT.slot_of("other") is None


def test_a_grant_of_another_pod_is_none() -> None:
    with pytest.raises(GrantUnreadable, match=r"it is of the pod with UID .* and this pod's is another"):
        read_grant(write_grant(GRANT), "another")


def test_a_newer_version_is_told_even_if_it_looks_otherwise() -> None:
    with pytest.raises(GrantUnreadable, match=r"it has version 2, and this is made for 1"):
        read_grant('{"version":2,"anything":[1]}', UID)


def slot(**changes: Any) -> dict[str, Any]:
    return {"container": "main", "shares": [{"uuid": "GPU-1", "memory": 1}], **changes}


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        '"text"',
        "1",
        write_grant(GRANT)[:-1],
        write_grant(GRANT) + "x",
        "[" * 60000,
        '{"version":' + "[" * 60000,
        '{"version":1,"uid":"' + UID + '","slots":[],"x":' + "[" * 50000,
        "\ud800",
        "\x00",
        "x" * 70000,
        json.dumps(body(version="1")),
        json.dumps(body(version=0)),
        json.dumps(body(version=True)),
        json.dumps(body(version=None)),
        json.dumps(body(version=2**70)),
        '{"version":1' + "0" * 9000 + "}",
        json.dumps(body(uid="")),
        json.dumps(body(uid=None)),
        json.dumps(body(uid="a b")),
        json.dumps(body(more=1)),
        json.dumps(body(slots=[])),
        json.dumps(body(slots=None)),
        json.dumps(body(slots={})),
        json.dumps(body(slots=[None])),
        json.dumps(body(slots=[slot(), slot()])),
        json.dumps(body(slots=[slot(init=["main"])])),
        json.dumps(body(slots=[slot(container="Main")])),
        json.dumps(body(slots=[slot(container="x" * 64)])),
        json.dumps(body(slots=[slot(container="a\n")])),
        json.dumps(body(slots=[slot(container="../x")])),
        json.dumps(body(slots=[slot(shares=[])])),
        json.dumps(body(slots=[slot(extra=1)])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": 0}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": -1}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": 1.5}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": "1"}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": True}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": 2**63}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": 10**400}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1,all", "memory": 1}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1\nX=1", "memory": 1}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "", "memory": 1}])])),
        json.dumps(body(slots=[slot(shares=[{"memory": 1}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1"}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": 1, "compute": 0}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": 1, "compute": 101}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": 1, "whole": 1}])])),
        json.dumps(body(slots=[slot(shares=[{"uuid": "GPU-1", "memory": 1}] * 2)])),
        None,
        1,
        b"{}",
        {},
    ],
    ids=lambda damaged: ascii(damaged)[-60:],
)
def test_damaged_and_forged_grants_are_refused_with_the_remedy(damaged: object) -> None:
    with pytest.raises(GrantUnreadable) as error:
        read_grant(damaged, UID)
    assert isinstance(error.value, CotenantError)
    assert str(error.value).startswith("annotation cotenant.dev/grant: ")
    assert "delete the pod" in str(error.value)
    assert len(str(error.value)) < 1000


@given(st.data())
def test_any_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    text = write_grant(GRANT)
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, len(text)))
    damaged = text[:at] + data.draw(st.text(max_size=5)) + text[until:]
    try:
        grant = read_grant(damaged, UID)
    except GrantUnreadable:
        return
    assert grant.uid == UID
    assert read_grant(write_grant(grant), UID) == grant


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["version", "uid", "slots", "container", "shares", "x"]), inner)))  # fmt: skip
def test_any_json_is_refused(value: object) -> None:
    with pytest.raises(GrantUnreadable):
        read_grant(json.dumps(value), UID)


@pytest.mark.parametrize(
    "grant",
    [
        PodGrant("", GRANT.slots),
        PodGrant(UID, ()),
        PodGrant(UID, (GRANT.slots[0], GRANT.slots[0])),
        PodGrant(UID, (SlotGrant("Not A Name", (Share("GPU-1", 1),)),)),
        PodGrant(UID, (SlotGrant("main", ()),)),
    ],
)
def test_what_could_not_be_read_back_is_not_written(grant: PodGrant) -> None:
    with pytest.raises(ValueError, match=r"annotation cotenant.dev/grant"):
        write_grant(grant)


def test_the_longest_container_name_is_taken() -> None:
    grant = PodGrant(UID, (SlotGrant("x" * 63, (Share("MIG-GPU-5a3f/1/0", 1),), ("y" * 63,)),))
    assert read_grant(write_grant(grant), UID) == grant
