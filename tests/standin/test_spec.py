from __future__ import annotations

import ctypes
import os
import threading

import pytest

from cotenant.core.errors import BadInput, CotenantError
from cotenant.hardware import libraries
from cotenant.hardware.standin import layout as standin_layout
from cotenant.hardware.standin.driver import StandIn, create, parse_spec
from cotenant.hardware.standin.models import MODELS

GIB = 2**30


def test_a_spec_names_models_and_sizes(tmp_path):
    create(tmp_path / "cards", parse_spec("2xA100-80GB, t4,1x16GiB,11178MiB"))
    cards = StandIn(tmp_path / "cards").cards()
    assert [card.name for card in cards[:3]] == ["NVIDIA A100-SXM4-80GB"] * 2 + ["Tesla T4"]
    assert [card.capacity for card in cards[3:]] == [16 * GIB, 11178 * 2**20]
    assert len({card.uuid for card in cards}) == 5


def test_uuids_belong_to_the_place_in_the_spec(tmp_path):
    for name in "ab":
        create(tmp_path / name, parse_spec("3x16GiB"))
    one, other = (StandIn(tmp_path / name).cards() for name in "ab")
    assert [card.uuid for card in one] == [card.uuid for card in other]


def test_a_real_model_has_less_than_its_total():
    for name, model in MODELS.items():
        if model.unified:
            continue  # it has the host's memory
        assert 0 < model.reserved < model.total // 30, name


def test_mig_instances_follow_their_card(tmp_path):
    create(tmp_path / "cards", parse_spec("1xA100-80GB/3g.40gb+2g.20gb"))
    card, *instances = StandIn(tmp_path / "cards").cards()
    assert [i.parent for i in instances] == [card.uuid] * 2
    assert [i.name[-7:] for i in instances] == ["3g.40gb", "2g.20gb"]
    assert all(i.uuid.startswith("MIG-") for i in instances)
    assert sum(i.capacity for i in instances) < card.capacity


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "not understood"),
        ("2x", "the models are"),
        ("0xT4", "no GPU at all"),
        ("1xT4,,1xT4", "not understood"),
        ("B9000", "the models are A10, A100-40GB"),
        ("-1xT4", "the models are"),
        ("1xT4/1g.5gb", "cannot be cut"),
        ("1xA100-80GB/1g.5gb", "it has 1g.10gb"),
        ("1xA100-80GB/7g.80gb+1g.10gb", "more than one"),
        ("1xA100-80GB/", "no MIG profile ''"),
        ("65xT4", "at most 64"),
        ("1x1KiB", "not between"),
        ("1x999TiB", "not between"),
    ],
)
def test_a_bad_spec_says_what_is_wrong(spec, says):
    with pytest.raises(BadInput, match=says):
        parse_spec(spec)


def test_making_the_file_twice_leaves_the_first(tmp_path):
    path = tmp_path / "cards"
    create(path, parse_spec("1x16GiB"))
    before = path.stat().st_ino
    create(path, parse_spec("1x16GiB"), context_bytes=0)
    assert path.stat().st_ino == before
    with pytest.raises(CotenantError, match="describes other GPUs"):
        create(path, parse_spec("2x16GiB"))


def test_of_many_who_make_the_file_one_wins(tmp_path):
    path = tmp_path / "cards"
    barrier = threading.Barrier(8)

    def make():
        barrier.wait()
        create(path, parse_spec("2xT4"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["cards"]
    assert len(StandIn(path).cards()) == 2


def test_another_file_is_refused(tmp_path):
    (tmp_path / "cards").write_bytes(b"something else")
    with pytest.raises(CotenantError, match="no stand-in"):
        StandIn(tmp_path / "cards")
    with pytest.raises(CotenantError, match="no stand-in"):
        StandIn(tmp_path / "missing")


@pytest.mark.parametrize("library", [libraries.standin_cuda, libraries.standin_nvml])
def test_python_and_c_agree_about_the_file(library):
    layout = ctypes.CDLL(str(library())).standin_layout
    layout.restype = ctypes.c_uint64
    kinds = ("State", "Card", "Process", "Use", "Shared", "Group", "Limit")
    structs = {name.lower(): getattr(standin_layout, name) for name in kinds}
    expected = {
        **{f"{name}.size": ctypes.sizeof(struct) for name, struct in structs.items()},
        "cards": standin_layout.CARDS,
        "processes": standin_layout.PROCESSES,
        "xids": standin_layout.XIDS,
        "groups": standin_layout.GROUPS,
        "abi": standin_layout.ABI,
        "lock.control": standin_layout.LOCK_CONTROL,
        "lock.process": standin_layout.LOCK_PROCESS,
    }
    for name, struct in structs.items():
        for field, *_ in struct._fields_:
            if field not in {"pad", "spare"} and (name, field) != ("state", "size"):
                expected[f"{name}.{field}"] = getattr(struct, field).offset
    assert {name: layout(name.encode()) for name in expected} == expected
