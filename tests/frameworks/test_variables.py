"""Grants of gpushare and Volcano, as their containers find them."""

import pytest

from cotenant.frameworks import NoGrant, ShareError, share
from cotenant.frameworks.finding import find_grant

GIB, MIB = 1 << 30, 1 << 20
CONTEXT = 512 * MIB


def gpushare(container: object, card: object, **more: str) -> dict[str, str]:
    return {"ALIYUN_COM_GPU_MEM_CONTAINER": str(container), "ALIYUN_COM_GPU_MEM_DEV": str(card), **more}


def volcano(allocated: object, total: object = "") -> dict[str, str]:
    found = {"VOLCANO_GPU_ALLOCATED": str(allocated)}
    return {**found, "VOLCANO_GPU_MEMORY_TOTAL": str(total)} if total else found


@pytest.mark.parametrize(
    ("environ", "limit", "true_size"),
    [
        (gpushare(3803, 7606), 3803 * MIB, 7606 * MIB),
        (gpushare(3, 15), 3 * GIB, 15 * GIB + 512 * MIB),
        (gpushare(3, 15), 3 * GIB, 16 * GIB - 1),
        (gpushare(40, 79), 40 * GIB, 79 * GIB + 256 * MIB),
        (volcano(1024, 11178), 1024 * MIB, 11178 * MIB + 1),
    ],
)
def test_a_share_is_a_part_of_the_card_whatever_was_rounded(environ, limit, true_size):
    mine = share(environ=environ)
    assert (mine.limit, mine.usable, mine.needed) == (limit, limit - CONTEXT, True)
    assert mine.fraction * true_size + CONTEXT <= limit
    assert mine.fraction > 0.9 * mine.usable / true_size, "and not much less than it could be"


def test_memory_over_several_cards_is_split():
    mine = share(environ=gpushare(8, 15, ALIYUN_COM_GPU_MEM_IDX="0,1"))
    assert (len(mine.grant.cards), mine.limit) == (2, 4 * GIB)


@pytest.mark.parametrize(
    "environ",
    [
        gpushare(15, 15),
        gpushare(7606, 7606),
        volcano(1),
        volcano(2, 11178),
        volcano(11178, 11178),
        volcano(16),
    ],
)
def test_whole_cards_need_nothing(environ):
    mine = share(environ=environ)
    assert (mine.needed, mine.fraction, mine.environment("jax")) == (False, 1.0, {})


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (gpushare(3, ""), "ALIYUN_COM_GPU_MEM_CONTAINER is set and ALIYUN_COM_GPU_MEM_DEV is not"),
        (gpushare("3Gi", 15), "ALIYUN_COM_GPU_MEM_CONTAINER: '3Gi' is not a number above zero"),
        (gpushare(3, "fifteen"), "ALIYUN_COM_GPU_MEM_DEV: 'fifteen' is not a number"),
        (gpushare(0, 15), "ALIYUN_COM_GPU_MEM_CONTAINER: '0' is not a number above zero"),
        (gpushare("-3", 15), "'-3' is not a number"),
        (gpushare("٣", 15), r"'\\u0663' is not a number"),
        (gpushare("9" * 4000, 15), "ALIYUN_COM_GPU_MEM_CONTAINER: '9{40}' is not a number"),
        (gpushare(3, 15, ALIYUN_COM_GPU_MEM_IDX="-1"), "ALIYUN_COM_GPU_MEM_IDX=-1: gpushare found no card"),
        (volcano(1024), "VOLCANO_GPU_ALLOCATED is set and VOLCANO_GPU_MEMORY_TOTAL is not"),
        (volcano("x", 1024), "VOLCANO_GPU_ALLOCATED: 'x' is not a number"),
    ],
)
def test_what_cannot_be_read_is_named(environ, words):
    with pytest.raises(ShareError, match=words):
        share(environ=environ)


@pytest.mark.parametrize("environ", [{}, {"PATH": "/bin"}, gpushare("", 15), {"COTENANT_SLOT": ""}])
def test_without_a_grant_it_says_where_it_looked_and_what_to_do(environ):
    with pytest.raises(NoGrant) as raised:
        share(environ=environ)
    for word in (
        "/run/cotenant/slot",
        "COTENANT_SLOT",
        "ALIYUN_COM_GPU_MEM_CONTAINER",
        "cotenant run --gpu-memory",
    ):
        assert word in str(raised.value)


def test_a_slot_wins_over_the_variables(tmp_path):
    """Cotenant writes both for a pod of gpushare; only the slot knows the mode."""
    environ = {**gpushare(3, 15), "COTENANT_SLOT": str(tmp_path / "gone")}
    with pytest.raises(ShareError, match=r"gone/limits: No such file or directory: the grant has ended"):
        find_grant(environ)
    (tmp_path / "mounted").mkdir()
    with pytest.raises(ShareError, match="mounted/limits"):
        find_grant(environ, str(tmp_path / "mounted"))
