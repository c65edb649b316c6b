"""What one process of a grant may hold: computed from the grant alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.frameworks import Card, Grant, Share, ShareError
from cotenant.frameworks.sharing import MOST_PROCESSES

GIB, MIB = 1 << 30, 1 << 20
CONTEXT = 512 * MIB


def granted(limit=4 * GIB, size=16 * GIB, *, mode="observe", shim=True, context=CONTEXT, **more) -> Grant:
    return Grant("slot", (Card(limit, size, context, "GPU-0", **more),), mode, shim)


ENFORCED = granted(size=None, mode="enforce")
ELSEWHERE = Grant("gpushare", (Card(4 * GIB, 16 * GIB, CONTEXT),))


def test_the_grant_covers_the_context():
    mine = Share(granted())
    assert (mine.limit, mine.usable) == (4 * GIB, 4 * GIB - CONTEXT)
    assert mine.fraction == 0.2187, "0.21875, rounded down"


@pytest.mark.parametrize(
    ("grant", "needed", "reason"),
    [
        (granted(mode="observe"), True, "mode observe"),
        (granted(mode="warn"), True, "mode warn"),
        (granted(mode="enforce", shim=False), True, "not loaded"),
        (ELSEWHERE, True, "nothing holds programs"),
        (ENFORCED, False, "shrink it twice"),
        (granted(16 * GIB, whole=True), False, "whole card"),
    ],
)
def test_what_is_told_depends_on_what_the_program_sees(grant, needed, reason):
    mine = Share(grant)
    assert (mine.needed, mine.fraction < 1) == (needed, needed)
    assert reason in mine.reason


@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_one_process_under_the_shim_is_never_shrunk_twice(factor):
    for limit in (100 * MIB, GIB, 80 * GIB):
        mine = Share(granted(limit, None, mode="enforce"), factor=factor)
        assert mine.fraction == 1.0
        for framework in ("pytorch", "tensorflow", "jax", "cupy", "onnxruntime", "triton"):
            settings = mine.settings(framework, {})
            assert (settings.environment, settings.arguments, settings.code) == ({}, (), "")


def test_several_processes_divide_what_the_shim_shows():
    mine = Share(ENFORCED, 2)
    assert mine.usable == 2 * GIB - CONTEXT
    assert mine.fraction == 0.375
    assert "2 processes share the 4Gi" in mine.reason


def test_several_processes_divide_a_whole_card():
    mine = Share(granted(16 * GIB, whole=True), 4)
    assert (mine.needed, mine.usable) == (True, 4 * GIB - CONTEXT)


def test_a_factor_leaves_a_part_unused():
    assert Share(granted(), factor=0.7).usable == int((4 * GIB - CONTEXT) * 0.7)


def test_cards_that_differ_have_the_smallest_part():
    cards = (
        Card(8 * GIB, 80 * GIB, CONTEXT),
        Card(8 * GIB, 16 * GIB, CONTEXT),
        Card(6 * GIB, 24 * GIB, CONTEXT),
    )
    mine = Share(Grant("slot", cards, "observe", shim=True))
    assert (mine.limit, mine.usable) == (6 * GIB, 6 * GIB - CONTEXT)
    assert mine.fraction == 0.0937, "of the 80 GiB card"


@pytest.mark.parametrize("limit", [CONTEXT, CONTEXT - 1, 1])
def test_a_grant_that_holds_no_more_than_a_context_is_refused(limit):
    """A fraction of 0 is no limit at all for TensorFlow."""
    with pytest.raises(
        ShareError, match=r"a CUDA context of 512Mi nothing is left for the process: ask for more"
    ):
        Share(granted(limit))


def test_too_many_processes_are_refused():
    with pytest.raises(ShareError, match=r"4Gi are granted.* each of 8 processes"):
        Share(granted(), 8)
    with pytest.raises(ShareError, match="each of 8 processes"):
        Share(ENFORCED, 8)


@pytest.mark.parametrize("processes", [0, -1, MOST_PROCESSES + 1, 1.5, "2", None])
def test_a_number_of_processes_that_is_not_valid_is_named(processes):
    with pytest.raises(ShareError, match=r"processes: .* is not a number from 1 to 1024"):
        Share(granted(), processes)


@pytest.mark.parametrize("factor", [0, -0.1, 1.1, float("nan"), float("inf")])
def test_a_factor_that_is_not_valid_is_named(factor):
    with pytest.raises(ShareError, match=r"factor: .* is not above 0"):
        Share(granted(), factor=factor)


def test_a_whole_card_of_unknown_size_needs_nothing_and_says_so_if_asked():
    grant = Grant("VOLCANO_GPU_ALLOCATED=1", (Card(0, None, CONTEXT, whole=True),))
    mine = Share(grant)
    assert (mine.needed, mine.fraction) == (False, 1.0)
    assert mine.environment("cupy") == {}
    with pytest.raises(ShareError, match="how large a card is"):
        _ = mine.usable
    with pytest.raises(ShareError, match="how large a card is"):
        _ = Share(grant, 2).settings("cupy")


def test_a_framework_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(ShareError, match="'caffe' is not one of pytorch, tensorflow, jax"):
        Share(granted()).environment("caffe")


@given(
    limit=st.integers(1, 300 * GIB),
    size=st.integers(GIB, 300 * GIB),
    context=st.integers(0, 2 * GIB),
    processes=st.integers(1, 64),
    factor=st.floats(0.01, 1.0),
    mode=st.sampled_from(["observe", "warn", "enforce"]),
    shim=st.booleans(),
)
def test_all_processes_together_never_pass_the_grant(limit, size, context, processes, factor, mode, shim):
    limit = min(limit, size)
    grant = granted(limit, size, mode=mode, shim=shim, context=context, whole=limit == size)
    seen = limit if grant.enforced else size
    try:
        mine = Share(grant, processes, factor)
    except ShareError:
        assert (limit // processes - context) * factor < seen / 10000 + 1, (
            "it is refused only if nothing is left"
        )
        return
    if mine.needed:
        assert 0 < mine.fraction <= 1
        assert processes * (mine.fraction * seen + context) <= limit + 1
        assert processes * (mine.usable + context) <= limit
