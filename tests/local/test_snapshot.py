"""The names that scripts read in JSON, in their order: they never change."""

from __future__ import annotations

from dataclasses import replace

from cotenant.hardware.nvml import CardProcess
from cotenant.local import slot_folder
from cotenant.local.line import join
from cotenant.local.machine import now
from cotenant.local.snapshot import snapshot, to_json

GIB = 1 << 30
GPU = (
    "uuid index model parent healthy problem memory shared free granted used used_by_grants outside compute_free utilization "
    "whole grants strangers"
)
GRANT = (
    "id name user command pid mode enforcer compute limit used peak denied over idle_seconds running_seconds processes "
    "shares"
)
SHARE = "uuid index limit used peak compute whole"
WAITING = "id name user command pid place waited_seconds demand reason held"


def test_json_has_its_names_in_their_order(plain_machine, plain_cards, make_job):
    for id in "abc":
        join(plain_machine, make_job(id, 13 * GIB), wait=True, rename=True)
    plain_cards.cards[0] = plain_cards.cards[0]._replace(used=GIB, processes=(CardProcess(999_999, GIB),))
    told = to_json(plain_machine, snapshot(plain_machine))
    assert list(told) == ["simulated", "home", "gpus", "grants", "line"]
    assert [" ".join(each) for each in told["gpus"]] == [GPU, GPU]
    assert [" ".join(each) for each in told["grants"]] == [GRANT, GRANT]
    assert " ".join(told["grants"][0]["shares"][0]) == SHARE
    assert [" ".join(each) for each in told["line"]] == [WAITING]
    assert told["gpus"][0]["strangers"] == [{"pid": 999_999, "bytes": GIB, "command": "", "user": ""}]
    assert (told["gpus"][0]["grants"], told["gpus"][1]["grants"]) == (["a"], ["b"])
    assert told["gpus"][0]["free"] == 2 * GIB


def test_a_job_that_never_used_its_gpu_is_idle_since_its_start(plain_machine, make_job):
    """`-` would hide who holds a card for nothing."""
    job = make_job("a", slot=plain_machine.home.slots / "a")
    job = join(plain_machine, job, wait=True, rename=True).job
    slot_folder.make(plain_machine, job)
    with plain_machine.store.change() as books:
        books.jobs["a"] = replace(job, granted=now() - 100)
    (grant,) = snapshot(plain_machine).grants
    assert 100 <= grant.idle_seconds == grant.running_seconds < 200
