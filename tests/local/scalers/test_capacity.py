"""What the ledger says of more replicas, and of somebody in line."""

from dataclasses import replace

from cotenant.core.caps import Caps, Holding
from cotenant.core.demand import Demand
from cotenant.core.grant import Share
from cotenant.core.units import Memory
from cotenant.local import line
from cotenant.local.scalers.capacity import Allowance, allowance, room_for, would_start

GIB = 1 << 30
FREE = Allowance("me", Holding())


def demand(gib):
    return Demand(Memory(bytes=gib * GIB))


def seen(machine, jobs):
    return line.read_gpus(machine, jobs, {})


def test_room_is_counted_in_replicas_and_not_on_cards_held_for_others(plain_machine, make_job):
    held = make_job("a", shares=(Share("GPU-0", 10 * GIB),), granted=1.0)
    ledger = seen(plain_machine, [held]).ledger([held])
    assert room_for(ledger, demand(4), (), 100, FREE) == 1 + 4
    assert room_for(ledger, demand(4), {"GPU-1"}, 100, FREE) == 1
    assert room_for(ledger, demand(4), (), 3, FREE) == 3
    assert room_for(ledger, Demand(whole=1), (), 100, FREE) == 1
    assert room_for(ledger, Demand(whole=2), (), 100, FREE) == 0
    assert ledger.grants.keys() == {"a"}, "nothing is charged"


def test_no_more_replicas_fit_than_their_user_may_have(plain_machine, make_job):
    held = make_job("a", shares=(Share("GPU-0", 4 * GIB),), granted=1.0)
    ledger = seen(plain_machine, [held]).ledger([held])
    capped = replace(plain_machine, caps=Caps(running=3))
    assert room_for(ledger, demand(1), (), 100, allowance(capped, "me", [held])) == 2
    assert room_for(ledger, demand(1), (), 100, allowance(capped, "another", [held])) == 3
    capped = replace(plain_machine, caps=Caps(memory=10 * GIB))
    assert room_for(ledger, demand(4), (), 100, allowance(capped, "me", [held])) == 1


def test_only_somebody_whom_the_release_would_let_start_counts(plain_machine, make_job):
    own = make_job("own", shares=(Share("GPU-0", 4 * GIB),), granted=1.0, workload="w")
    whole = make_job("whole", demand=Demand(whole=2))
    jobs = [own, whole]
    assert would_start(plain_machine, seen(plain_machine, jobs), jobs, {"own"}, "w").id == "whole"
    assert would_start(plain_machine, seen(plain_machine, jobs), jobs, set(), "w") is None
    other = make_job("other", shares=(Share("GPU-1", GIB),), granted=1.0)
    more = [*jobs, other]
    assert would_start(plain_machine, seen(plain_machine, more), more, {"own"}, "w") is None


def test_its_own_replicas_in_line_and_those_that_fit_anyway_do_not_count(plain_machine, make_job):
    own = make_job("own", shares=(Share("GPU-0", 4 * GIB),), granted=1.0, workload="w")
    waiting = make_job("w-2", demand=Demand(whole=2), workload="w")
    small = make_job("small", demand=demand(1))
    jobs = [own, waiting, small]
    assert would_start(plain_machine, seen(plain_machine, jobs), jobs, {"own"}, "w") is None
