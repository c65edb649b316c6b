"""Whole runs: policies against the simulated model server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulate.scaling import loads

from cotenant.simulate.scaling import oracle
from cotenant.simulate.scaling.comparing import ORACLE, compare, make_loads, mean, to_json
from cotenant.simulate.scaling.faults import parse_fault
from cotenant.simulate.scaling.observation import Answer, Observation
from cotenant.simulate.scaling.plot import busy_slots
from cotenant.simulate.scaling.policies.table import POLICIES, build, check
from cotenant.simulate.scaling.recording import SLICES
from cotenant.simulate.scaling.running import Conditions, Outcome, run
from cotenant.simulate.scaling.trace import Trace
from cotenant.simulate.scaling.workload import Workload


class Scripted:
    """Wants what a list says, the last of it for ever."""

    period = 5.0

    def __init__(self, *wanted: int) -> None:
        self.wanted = list(wanted)
        self.observed: list[Observation] = []

    def decide(self, seen: Observation) -> Answer:
        self.observed.append(seen)
        return Answer(self.wanted.pop(0) if len(self.wanted) > 1 else self.wanted[0])


def ours(workload: Workload, conditions: Conditions) -> Outcome:
    return run(workload, build("ours", workload.mean_service, conditions), conditions)


def test_turns_are_changes_of_direction_and_not_steps() -> None:
    workload = loads.at(*range(60))
    outcome = run(workload, Scripted(2, 3, 4, 4, 3, 2, 2, 3), Conditions(), replicas=1)
    assert outcome.turns == 2


def test_late_is_a_start_after_the_target_and_what_never_starts() -> None:
    workload = loads.at(0, 0, 0, 0, service=4.0)
    outcome = run(workload, Scripted(1), Conditions(target=5), replicas=1)
    assert (outcome.late, outcome.unserved) == (2, 0)
    never = run(workload, Scripted(0), Conditions(minimum=0), replicas=0)
    assert (never.late, never.unserved, never.replica_hours) == (4, 4, 0)


def test_the_wanted_number_is_kept_between_minimum_and_maximum() -> None:
    outcome = run(loads.at(*range(60)), Scripted(0, 99), Conditions(minimum=2, maximum=5), replicas=3)
    assert {each.wanted for each in outcome.changes} == {2, 5}


def test_figures_are_a_little_old_and_some_polls_bring_nothing() -> None:
    policy = Scripted(3)
    run(loads.steady(2, 1, 5000), policy, Conditions(staleness=2, missing=0.05))
    ages = [each.now - each.figures.at for each in policy.observed[1:] if each.figures]
    assert 0 <= min(ages) < 0.1
    assert 1.9 < max(ages) <= 2
    missing = sum(each.figures is None for each in policy.observed) / len(policy.observed)
    assert 0.03 < missing < 0.07


def test_faults_of_the_figures_reach_the_policy() -> None:
    policy = Scripted(3)
    faults = tuple(map(parse_fault, ("missing@100+50", "stuck@300+50", "reset@500")))
    run(loads.steady(2, 1, 700), policy, Conditions(missing=0, staleness=0, faults=faults))
    seen = {each.now: each for each in policy.observed}
    assert [at for at, each in seen.items() if each.figures is None] == [*range(100, 150, 5)]
    assert len({seen[at].figures for at in range(300, 350, 5)}) == 1
    before, after = seen[495].figures, seen[505].figures
    assert before is not None
    assert after is not None
    assert before.arrived > 900
    assert after.arrived < 30


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_gives_the_same_figures(name: str) -> None:
    workload = loads.steady(3, 1, 900)
    world = Conditions(seed=7)
    first, second = (run(workload, build(name, 1.0, world), world) for _ in range(2))
    assert first == second
    assert first.requests == len(workload.arrivals)


@pytest.mark.parametrize("kind", ["missing", "stuck", "reset", "poison", "crash-loop", "full"])
def test_ours_survives_each_fault_and_serves_everything(kind: str) -> None:
    workload = loads.ramp(1, 6, 1, 3600)
    outcome = ours(workload, Conditions(maximum=30, faults=(parse_fault(f"{kind}@20m+5m"),)))
    assert outcome.unserved == 0
    assert outcome.late_percent < 15
    assert outcome.turns <= 4


def test_ours_says_what_is_wrong_while_it_is() -> None:
    world = Conditions(maximum=30)
    workload = loads.steady(3, 1, 3600)

    def states(fault: str) -> set[str]:
        return set(ours(workload, replace(world, faults=(parse_fault(fault),))).states)

    assert "NoMetric" in states("missing@20m+5m")
    assert "MetricStuck" in states("stuck@20m+5m")
    growing = loads.ramp(1, 20, 1, 3600)
    full = ours(growing, replace(world, faults=(parse_fault("full@10m+20m"),)))
    assert "WaitingForGpu" in full.states
    crashing = ours(growing, replace(world, faults=(parse_fault("crash-loop@10m+20m"),)))
    assert "NotStarting" in crashing.states


def test_what_came_while_the_figures_stuck_is_no_burst() -> None:
    workload = loads.steady(5.5, 0.8, 3000)
    stuck = replace(Conditions(), faults=(parse_fault("stuck@20m+10m"),))
    usual = max(each.wanted for each in ours(workload, Conditions()).changes)
    assert max(each.wanted for each in ours(workload, stuck).changes) <= usual + 1


def test_on_a_full_cluster_no_replica_beyond_the_gpus_costs_anything() -> None:
    workload = loads.steady(20, 1, 1200)
    outcome = ours(workload, Conditions(cards=5, maximum=100))
    assert outcome.replica_hours <= 5 * (1200 + 3600 + 100) / 3600
    assert max(each.wanted for each in outcome.changes) == 6


def test_idle_replicas_are_released_and_woken() -> None:
    workload = loads.on_off(2, 1, 300, 1500, 5400)
    kept = ours(workload, Conditions(minimum=0))
    released = ours(workload, Conditions(minimum=0, idle=300))
    assert min(each.wanted for each in released.changes) == 0
    assert min(each.wanted for each in kept.changes) >= 1
    assert released.replica_hours < kept.replica_hours
    assert released.unserved == 0


def test_the_oracle_is_never_late_and_cheaper_than_ours() -> None:
    workload = loads.ramp(1, 12, 1.5, 3600)
    world = Conditions(cold_start=60)
    plan = oracle.plan(workload, world)
    ideal = run(workload, plan, world, replicas=plan.first)
    assert ideal.late_percent < 0.05
    assert workload.bound() / 3600 * 0.95 < ideal.replica_hours < ours(workload, world).replica_hours


def test_the_oracle_starts_one_cold_start_ahead() -> None:
    workload = loads.at(0, *[600 + at / 10 for at in range(100)], service=10)
    plan = oracle.plan(workload, Conditions(cold_start=100, target=1))
    wanted = [plan.decide(Observation(at, None, None)).replicas for at in range(0, 610, 5)]  # type: ignore[arg-type]
    assert wanted[: 490 // 5] == [1] * (490 // 5)
    assert wanted[500 // 5] > 30


def test_a_table_has_every_combination_and_the_mean_of_each_policy() -> None:
    trace = Trace(loads.steady(2, 1, 600), timed=False, form="tokens")
    made = make_loads(trace, [0.2, 1.0], None, seed=1)
    assert [(each.service, each.copies) for each in made] == [(0.2, 5), (1.0, 1)]
    rows = compare(made, [10, 45], [3, 5], ["ours", "hpa"], Conditions())
    assert len(rows) == 8
    assert set(rows[0].outcomes) == {"ours", "hpa", ORACLE}
    told = to_json(rows, changes=True)
    assert told["mean"]["ours"]["latePercent"] == round(mean(rows, "ours").late_percent, 4)
    assert told["rows"][0]["policies"]["ours"]["changes"]


def test_a_load_of_its_own_is_never_laid_over() -> None:
    trace = Trace(loads.steady(0.2, 1, 600), timed=True, form="seconds")
    (own,) = make_loads(trace, [], None, seed=1)
    assert (own.copies, len(own.workload.arrivals)) == (1, len(trace.workload.arrivals))
    (one,) = make_loads(trace, [0.1], None, seed=1)
    assert one.copies == 1
    (four,) = make_loads(trace, [0.1], [4], seed=1)
    assert len(four.workload.arrivals) == 4 * len(trace.workload.arrivals)


def test_an_unknown_policy_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(Exception, match="policy: 'vpa' is not known; there are ours, seed"):
        check(["ours", "vpa"])


def test_the_oracle_has_a_plan_also_where_the_last_poll_falls_on_the_end_of_a_block() -> None:
    plan = oracle.plan(loads.at(0.0, 3.6), Conditions(poll=0.2, cold_start=1.0))
    assert plan.first == 1


def test_a_trace_of_one_moment_has_a_load_that_can_be_drawn() -> None:
    assert max(busy_slots(loads.at(0.0, service=0.5))) == pytest.approx(0.5 * SLICES)


def test_the_oracle_plans_for_a_trace_that_ends_with_a_burst() -> None:
    workload, world = loads.at(0.0, *[60.0] * 100), Conditions(target=5)
    plan = oracle.plan(workload, world)
    assert run(workload, plan, world, replicas=plan.first).late == 0


def test_turns_are_counted_by_the_time_that_was_simulated() -> None:
    outcome = run(loads.at(*[0.0] * 60), Scripted(2, 1, 1), Conditions(), replicas=1)
    assert (outcome.turns, outcome.turns_per_hour) == (1, pytest.approx(3600 / 60, rel=0.2))
