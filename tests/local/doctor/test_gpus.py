"""GPUs that are granted beyond their size or not healthy, and memory that no limit covers."""

import os
import pwd
from dataclasses import replace

from local.doctor.examining import GIB, WELL, assert_found, assert_repaired, check, kinds

from cotenant.core.checkup import findings
from cotenant.core.demand import Demand
from cotenant.core.grant import Share
from cotenant.hardware import slots
from cotenant.hardware.accounting import GpuAccount
from cotenant.hardware.nvml import CardProcess
from cotenant.local.doctor.checkup import SUBJECTS
from cotenant.local.doctor.facts import GpuFacts, Holding, MachineFacts
from cotenant.local.processes import identify


def test_a_card_that_shrank(plain_machine, charge, alive):
    """What lies unused is given up, in the ledger and in the slots alike."""
    jobs = [charge(name, memory=size * GIB, process=alive) for name, size in (("a", 6), ("b", 5), ("c", 4))]
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(gpu=replace(reading.gpu, memory=9 * GIB))
    assert_repaired(plain_machine, "over-granted")
    granted = {job.name: job.grant.memory for job in plain_machine.store.jobs()}
    assert granted == {"a": 3 * GIB, "b": 3 * GIB, "c": 3 * GIB}
    assert {job.name: slots.read_limits(job.slot).cards[0].bytes for job in jobs} == granted


def test_a_whole_card_that_shrank(plain_machine, charge, alive):
    job = charge(
        "train", process=alive, demand=Demand(whole=1), shares=(Share("GPU-0", 16 * GIB, whole=True),)
    )
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(gpu=replace(reading.gpu, memory=15 * GIB))
    assert_repaired(plain_machine, "over-granted")
    assert plain_machine.store.jobs()[0].shares == (Share("GPU-0", 15 * GIB, whole=True),)
    assert slots.read_limits(job.slot).cards[0].bytes == 15 * GIB


def test_what_is_in_use_is_not_taken_away(plain_machine, charge, alive):
    charge("train", memory=12 * GIB, process=alive)
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(
        gpu=replace(reading.gpu, memory=10 * GIB),
        used=12 * GIB,
        processes=(CardProcess(alive.pid, 12 * GIB),),
    )
    outcomes = check(plain_machine, fix=True)
    assert "over-granted" in kinds(outcomes)
    assert outcomes[0].left
    assert "in use" in outcomes[0].done
    assert plain_machine.store.jobs()[0].grant.memory == 12 * GIB


def test_a_sick_card(plain_machine):
    reading = plain_machine.cards.cards[1]
    plain_machine.cards.cards[1] = reading._replace(
        gpu=replace(reading.gpu, healthy=False), problem="3 uncorrected memory errors since it was reset"
    )
    assert_found(plain_machine, "sick-card")
    assert check(plain_machine, fix=True)[0].left
    assert "GPU 1" in check(plain_machine)[0].finding.found


def test_a_card_that_shares_the_hosts_memory(plain_machine):
    reading = plain_machine.cards.cards[1]
    plain_machine.cards.cards[1] = reading._replace(gpu=replace(reading.gpu, shared=True))
    assert_found(plain_machine, "shared-memory")
    finding = check(plain_machine)[0].finding
    assert finding.severity == "warning"
    assert "GPU 1" in finding.found
    assert "the host's" in finding.found


def test_memory_outside_any_grant(plain_machine, charge, alive):
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(
        used=3 * GIB, processes=(CardProcess(alive.pid, 3 * GIB),)
    )
    assert_found(plain_machine, "outside")
    finding = check(plain_machine)[0].finding
    assert finding.severity == "warning"
    user = pwd.getpwuid(os.getuid()).pw_name
    assert f"3Gi of GPU 0 are held outside any grant: pid {alive.pid} of {user} (3Gi)" in finding.found
    charge("train", memory=14 * GIB, process=identify(1))
    crowded = check(plain_machine)[0].finding
    assert crowded.severity == "error"
    assert "1Gi of what is granted is not there" in crowded.means


def test_memory_that_no_process_answers_for(plain_machine):
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(used=2 * GIB)
    assert "2Gi that no process answers for" in check(plain_machine)[0].finding.found
    plain_machine.cards.cards[0] = reading._replace(used=3 << 20)
    assert check(plain_machine) == ()


def test_a_process_of_a_grant_without_the_shim(plain_machine, charge, alive):
    charge("train", process=alive)
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(used=GIB, processes=(CardProcess(alive.pid, GIB),))
    assert_found(plain_machine, "escaped")
    finding = check(plain_machine)[0].finding
    assert finding.severity == "error"
    assert f"pid {alive.pid} of train holds 1Gi of GPU 0" in finding.found


def test_a_context_that_is_larger_than_thought(plain_machine, make_job):
    job = make_job("train", shares=(Share("GPU-0", 4 * GIB),))
    reading = plain_machine.cards.cards[0]
    account = GpuAccount({}, 0, 0)
    held = Holding(job, 7, told=GIB, counted=GIB // 2)
    facts = MachineFacts(plain_machine.home, WELL, cards=(GpuFacts(reading, account, (held,)),))
    assert [finding.kind for finding in findings(SUBJECTS, facts)] == ["undercounted"]
    close = held._replace(counted=GIB - (1 << 20))
    assert findings(SUBJECTS, facts._replace(cards=(GpuFacts(reading, account, (close,)),))) == ()
