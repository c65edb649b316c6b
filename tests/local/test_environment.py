from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.grant import Share
from cotenant.hardware.enforcers.mps import Mps
from cotenant.hardware.enforcers.shim import Shim
from cotenant.local import environment
from cotenant.local.job import Job
from cotenant.local.processes import Process

SHIM = Path("/native/libcotenant.so")
JOB = Job(
    id="abc",
    name="train",
    user="me",
    command=("train",),
    demand=Demand(Memory(bytes=4 << 30), compute=30),
    mode="enforce",
    enforcer="shim",
    compute="none",
    process=Process(1, 2, "boot"),
    since=0.0,
    slot=Path("/slots/abc"),
    shares=(Share("GPU-a", 2 << 30), Share("GPU-b", 2 << 30)),
)


def given(environ, job=JOB, *, preload=True, compute=None, cards=None):
    beside = [] if compute is None else [compute]
    return environment.for_command(environ, job, [Shim(SHIM, preload=preload), *beside], cards or {})


def test_a_command_sees_its_cards_its_slot_and_the_shim():
    assert given({"HOME": "/h"}) == {
        "HOME": "/h",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "COTENANT_SLOT": "/slots/abc",
        "LD_PRELOAD": str(SHIM),
    }


@pytest.mark.parametrize("before", ["/a.so:/b.so", "/a.so /b.so", " /a.so: /b.so "])
def test_the_shim_comes_before_what_the_user_preloads(before):
    assert given({"LD_PRELOAD": before})["LD_PRELOAD"] == f"{SHIM}:/a.so:/b.so"


def test_a_grant_inside_a_grant_replaces_it():
    outer = given({"LD_PRELOAD": "/a.so"})
    inner = given(outer, replace(JOB, slot=Path("/slots/inner")))
    assert inner["COTENANT_SLOT"] == "/slots/inner"
    assert inner["LD_PRELOAD"] == f"{SHIM}:/a.so"


def test_nothing_is_preloaded_where_it_would_do_harm():
    assert "LD_PRELOAD" not in given({}, preload=False)
    assert given({"LD_PRELOAD": "/a.so"}, preload=False)["LD_PRELOAD"] == "/a.so"


def test_compute_is_passed_to_mps_only_where_it_runs():
    name = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    assert name not in given({})
    assert given({}, compute=Mps({}, 30))[name] == "30"


def test_simulated_cards_are_found_through_the_environment():
    assert (
        given({"LD_LIBRARY_PATH": "/x"}, cards={"LD_LIBRARY_PATH": "/standin:/x"})["LD_LIBRARY_PATH"]
        == "/standin:/x"
    )


def test_a_job_survives_being_written_down():
    assert Job.from_json(JOB.to_json()) == JOB
