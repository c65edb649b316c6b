"""What a pod's condition says of its limits: the weakest of its containers decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kube.agent.nodes import GIB, A

from cotenant.dialects import names
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import PodProcess
from cotenant.kube.agent.limits.overuse import Overuse
from cotenant.kube.agent.limits.verdict import ContainerLimit, verdict
from cotenant.kube.api.objects import Condition, Meta, Pod, PodStatus
from cotenant.kube.pods.limit_held import LONGEST, limit_held, message

PROCESS = PodProcess(41, 7, Owner("u-1", "c"), 3 * GIB)
MAIN = ContainerLimit("main", "enforce", "shim", "shim", {"GPU 0": 2 * GIB})
OVER = (("GPU 0", Overuse(A, 2 * GIB, 3 * GIB, (PROCESS,))),)


def judge(*containers: ContainerLimit) -> tuple[str, str, str]:
    found = verdict(containers, {41: "train"})
    assert found is not None
    return found.status, found.reason, found.message


def test_what_holds_is_said_with_the_limit():
    assert judge(MAIN) == (
        "True",
        "Shim",
        "asked shim, holds shim: container main: limit of 2Gi on GPU 0 held by shim",
    )
    both = replace(MAIN, asked="driver", by="driver", sizes={"GPU 0": GIB, "GPU 1": 2 * GIB})
    assert judge(both)[1:] == (
        "Driver",
        "asked driver, holds driver: container main: limit of 1Gi on GPU 0 and 2Gi on GPU 1 held by driver",
    )


def test_a_weaker_one_than_asked_says_why():
    weaker = replace(MAIN, asked="driver", reason="the driver has no limits")
    assert judge(weaker)[1:] == (
        "Shim",
        "asked driver, holds shim: container main: limit of 2Gi on GPU 0 held by shim (the driver has no limits)",
    )


def test_the_weakest_container_decides():
    driver = replace(MAIN, asked="driver", by="driver")
    lost = replace(MAIN, container="side", asked="driver", by="watch", free=(("GPU 0", PROCESS),))
    status, reason, said = judge(driver, lost)
    assert (status, reason) == ("False", "NotHeld")
    assert said == (
        "asked driver, holds watch: container side uses a GPU without its limit: process 41 (train) with 3Gi on GPU 0"
    )


def test_what_is_over_comes_before_all():
    status, reason, said = judge(MAIN, replace(MAIN, container="side", by="watch", over=OVER))
    assert (status, reason) == ("False", "OverLimit")
    assert said == (
        "asked shim, holds watch: container side holds 3Gi on GPU 0, 1Gi more than its limit of 2Gi "
        "(process 41 (train) with 3Gi)"
    )


@pytest.mark.parametrize("mode", ["observe", "warn"])
@pytest.mark.parametrize("by", ["shim", "watch"])
def test_where_nothing_is_to_be_held_nothing_is_a_fault(mode: str, by: str):
    found = replace(MAIN, mode=mode, by=by)  # type: ignore[arg-type]
    assert judge(found)[:2] == ("False", "Watch")
    assert judge(replace(found, over=OVER))[:2] == ("False", "Watch"), "never evicted"


def test_a_node_that_is_only_to_watch_or_to_do_nothing_says_so():
    assert judge(replace(MAIN, asked="watch", by="watch"))[:2] == ("False", "Watch")
    assert judge(replace(MAIN, asked="none", by="none"))[1:] == (
        "NotHeld",
        "asked none, holds none: container main: nothing enforces its limit of 2Gi on GPU 0",
    )


def test_nothing_is_said_before_something_is_known():
    assert verdict([replace(MAIN, by="")], {}) is None
    assert verdict([], {}) is None
    assert judge(replace(MAIN, by=""), replace(MAIN, container="side"))[2].endswith(
        "container side: limit of 2Gi on GPU 0 held by shim"
    )


def test_readers_find_both_enforcers_in_it_and_survive_what_is_not_ours():
    def of(text: str, status: str = "False", reason: str = "OverLimit") -> Pod:
        shown = Condition(names.GPU_LIMIT_HELD, status, reason, text)
        return Pod(Meta("web"), status=PodStatus(conditions=(shown,)))

    found = limit_held(of(message("driver", "watch", "container main ...")))
    assert found is not None
    assert (found.asked, found.holds, found.details) == ("driver", "watch", "container main ...")
    assert found.is_over
    assert found.is_problem
    odd = limit_held(of("x" * 5000, "True"))
    assert odd is not None
    assert (odd.asked, odd.holds, len(odd.details), odd.is_over) == ("unknown", "unknown", LONGEST, False)
    assert limit_held(Pod(Meta("web"))) is None
