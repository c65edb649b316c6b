"""The view works out room by the ledger's rule and shares of time from the driver's figures."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.observe.view import GpuView, GrantView, NodeView, ShareView, View, with_utilization

GIB = 2**30
shares = st.lists(
    st.builds(
        Share,
        st.just("GPU-0"),
        st.integers(1, 20 * GIB),
        st.none() | st.integers(1, 100),
        st.booleans(),
    ),
    max_size=4,
)


@given(shares, st.integers(0, 20 * GIB), st.booleans())
def test_a_gpu_s_room_is_what_the_ledger_says(charged, outside, healthy):
    gpu = GPU("GPU-0", 0, "T4", 16 * GIB, healthy=healthy)
    ledger = Ledger([gpu], {"GPU-0": outside}, [Grant(str(at), (share,)) for at, share in enumerate(charged)])
    seen = tuple(
        ShareView(str(at), "job", each.uuid, each.memory, each.compute, each.whole)
        for at, each in enumerate(charged)
    )
    view = GpuView(gpu, outside=outside, shares=seen)
    assert view.room == ledger.room_on("GPU-0")
    assert view.granted == ledger.granted("GPU-0")


def view(*grants: GrantView) -> View:
    return View((NodeView("n"),), grants)


def grant(*uuids: str, pids: tuple[int, ...] = (7, 8)) -> GrantView:
    return GrantView(
        "a", "train", tuple(ShareView("a", "train", uuid, GIB) for uuid in uuids), processes=pids
    )


@pytest.mark.parametrize(
    ("of", "busy", "expected"),
    [
        (grant("GPU-0"), {"GPU-0": {7: 30, 8: 20, 9: 40}}, 50),
        (grant("GPU-0", "GPU-1"), {"GPU-0": {7: 30}, "GPU-1": {}}, 15),
        (grant("GPU-0", "GPU-1"), {"GPU-0": {7: 30}}, 30),
        (grant("GPU-0"), {"GPU-0": {7: 90, 8: 90}}, 100),
        (grant("GPU-0", pids=()), {"GPU-0": {7: 90}}, 0),
        (grant("GPU-0"), {"GPU-1": {7: 90}}, None),
        (grant("GPU-0"), {}, None),
    ],
)
def test_a_grant_s_share_of_time_is_the_mean_over_its_gpus(of, busy, expected):
    (found,) = with_utilization(view(of), busy).grants
    assert found.utilization == expected


def test_a_share_is_named_by_its_pod_or_job():
    assert str(ShareView("u", "a", "GPU-0", GIB, namespace="team")) == "team/a"
    assert str(ShareView("j", "train", "GPU-0", GIB)) == "train"


def test_the_view_needs_nothing_that_a_machine_without_the_cluster_extra_lacks():
    code = (
        "import sys, cotenant.observe.view, cotenant.local.snapshot\n"
        "print(sorted({'msgspec', 'numpy', 'prometheus_client', 'aiohttp'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
