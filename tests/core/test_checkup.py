"""Examine, repair, examine again: what counts as found, what is tried, and what is left."""

import pytest

from cotenant.core.checkup import Checkup, NotRepaired, Subject, findings, run_synchronously
from cotenant.core.finding import ERROR, Kind, Outcome

FAULT = Kind("fault", ERROR, "it does not work")
HIDDEN = Kind("hidden", ERROR, "it does not work either")


class Machine:
    """Faults by name. A repair removes its fault, or does what `repairs` says instead."""

    def __init__(self, *faults, repairs=None, lasting=None):
        self.faults = set(faults)
        self.looks, self.waits, self.tried = 0, [], []
        self.repairs = repairs or {}
        self.subject = Subject((self.check,), {"mend": self.mend}, lasting or {})

    def check(self, facts):
        for name in sorted(facts):
            yield (HIDDEN if name.startswith("hidden") else FAULT).at(name, name, "help", "mend")

    def mend(self, name):
        self.tried.append(name)
        self.repairs.get(name, lambda: self.faults.discard(name))()
        return f"mended {name}"

    def run(self, *, fix=True, changes=None):
        async def look():
            self.looks += 1
            (changes or {}).get(self.looks, lambda: None)()
            return frozenset(self.faults)

        async def repair(function, _facts, finding):
            return function(finding.target)

        async def wait(seconds):
            self.waits.append(seconds)

        checkup = Checkup((self.subject,), look, repair, wait, second_look=0.5)
        return run_synchronously(checkup.run(fix=fix))


def told(outcomes):
    return [(each.finding.target, each.left, each.done) for each in outcomes]


def test_a_machine_that_is_well_is_looked_at_once():
    machine = Machine()
    assert machine.run() == ()
    assert (machine.looks, machine.waits) == (1, [])


def test_what_is_gone_at_the_second_look_was_nothing():
    machine = Machine("a", "b")
    outcomes = machine.run(fix=False, changes={2: lambda: machine.faults.discard("a")})
    assert told(outcomes) == [("b", True, None)]


def test_what_appears_only_at_the_second_look_is_not_reported_yet():
    machine = Machine("a")
    assert told(machine.run(fix=False, changes={2: lambda: machine.faults.add("b")})) == [("a", True, None)]


def test_without_fix_nothing_is_tried():
    machine = Machine("a")
    assert told(machine.run(fix=False)) == [("a", True, None)]
    assert machine.tried == []


def test_what_is_repaired_is_gone_at_the_next_look():
    assert told(Machine("a", "b").run()) == [("a", False, "mended a"), ("b", False, "mended b")]


def test_a_repair_that_does_not_help_is_not_believed_and_not_tried_twice():
    machine = Machine("a", repairs={"a": lambda: None})
    assert told(machine.run()) == [("a", True, "mended a")]
    assert machine.tried == ["a"]


@pytest.mark.parametrize("error", [NotRepaired("it has ended"), OSError("disk full")])
def test_a_repair_that_fails_says_why_and_the_others_are_tried(error):
    def fail():
        raise error

    assert told(Machine("a", "b", repairs={"a": fail}).run()) == [
        ("a", True, f"could not: {error}"),
        ("b", False, "mended b"),
    ]


def test_what_a_repair_reveals_is_repaired_too():
    def reveal():
        machine.faults = {"hidden"}

    machine = Machine("a", repairs={"a": reveal})
    assert told(machine.run()) == [("a", False, "mended a"), ("hidden", False, "mended hidden")]


def test_repairs_that_reveal_one_fault_after_the_other_end_after_three_rounds():
    def reveal(number):
        return lambda: machine.faults.add(f"hidden-{number + 1}")

    machine = Machine("hidden-0", repairs={f"hidden-{at}": reveal(at) for at in range(9)})
    outcomes = machine.run()
    assert machine.tried == ["hidden-0", "hidden-1", "hidden-2"]
    assert told(outcomes)[-1] == ("hidden-3", True, None)


def test_the_second_look_comes_later_for_faults_that_must_last():
    machine = Machine("a", "hidden", lasting={"hidden": 12.0})
    machine.run(fix=False)
    assert machine.waits == [12.0]
    machine.faults = {"a"}
    machine.run(fix=False)
    assert machine.waits == [12.0, 0.5]


def test_findings_come_in_the_order_of_subjects_and_checks():
    def check(name):
        return lambda facts: [FAULT.at(name, name, "help") for _ in facts]

    subjects = Subject((check("b"), check("a"))), Subject((check("c"),))
    assert [each.target for each in findings(subjects, ["wrong"])] == ["b", "a", "c"]


def test_an_outcome_as_json():
    assert Outcome(FAULT.at("a", "found", "do"), left=True).to_json() == {
        "kind": "fault",
        "target": "a",
        "severity": "error",
        "found": "found",
        "means": "it does not work",
        "do": "do",
        "fixable": False,
        "fixed": False,
        "done": None,
    }


def test_a_coroutine_that_waits_for_an_event_loop_cannot_run_synchronously():
    class Forever:
        def __await__(self):
            yield

    async def waits():
        await Forever()

    with pytest.raises(RuntimeError, match="event loop"):
        run_synchronously(waits())
