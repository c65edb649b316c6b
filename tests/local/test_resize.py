"""Steps of a limit, and figures that were not meant."""

from fractions import Fraction

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.hardware import slots
from cotenant.hardware.nvml import CardReading
from cotenant.local import line, slot_folder
from cotenant.local.resize import Step, resize

GIB = 1 << 30


@pytest.fixture
def granted(plain_machine, make_job):
    def make(demand):
        job = make_job("train", demand=demand, slot=plain_machine.home.slots / "train")
        job = line.join(plain_machine, job, wait=False, rename=False).job
        slot_folder.make(plain_machine, job)
        return job

    return make


@pytest.mark.parametrize(("step", "after"), [(2, 6), (-2, 2), (-3, 1)])
def test_a_step_is_counted_from_what_it_has(plain_machine, granted, step, after):
    granted(Demand(Memory(bytes=4 * GIB)))
    done = resize(plain_machine, "train", Step(step * GIB))
    assert done.after.grant.memory == after * GIB
    assert done.after.demand.memory == Memory(bytes=after * GIB)
    assert slots.read_limits(done.after.slot).cards[0].bytes == after * GIB


def test_a_step_is_of_all_gpus_together(plain_machine, granted):
    granted(Demand(Memory(bytes=8 * GIB), gpus=2))
    done = resize(plain_machine, "train", Step(2 * GIB))
    assert [share.memory for share in done.after.shares] == [5 * GIB, 5 * GIB]


def test_a_step_from_a_percentage_is_from_its_bytes(plain_machine, granted):
    granted(Demand(Memory(percent=Fraction(50))))
    assert resize(plain_machine, "train", Step(GIB)).after.grant.memory == 9 * GIB


def test_a_step_from_percentages_of_different_gpus_is_refused(plain_machine, plain_cards, granted):
    plain_cards.cards[1] = CardReading(GPU("GPU-1", 1, "A100", 80 * GIB), used=0)
    before = granted(Demand(Memory(percent=Fraction(50)), gpus=2))
    with pytest.raises(BadInput, match="different sizes"):
        resize(plain_machine, "train", Step(GIB))
    assert plain_machine.store.find("train") == before


@pytest.mark.parametrize("step", [-4, -5])
def test_a_step_that_leaves_nothing_is_refused(plain_machine, granted, step):
    before = granted(Demand(Memory(bytes=4 * GIB)))
    with pytest.raises(BadInput, match="leaves nothing of the 4Gi that train has"):
        resize(plain_machine, "train", Step(step * GIB))
    assert plain_machine.store.find("train") == before


def test_the_sign_on_the_command_line(machine):
    process = machine.holder("4Gi", "ready", "hold", options=["--name", "train"])
    assert process.stdout.readline() == "ready\n"
    assert machine("resize", "train", "+2Gi").stdout == "train: 4Gi -> 6Gi\n"
    assert machine("resize", "train", "-512Mi").stdout == "train: 6Gi -> 5.5Gi\n"
    assert machine("resize", "--", "train", "-512Mi").stdout == "train: 5.5Gi -> 5Gi\n"
    assert machine("resize", "train", "3Gi").stdout == "train: 5Gi -> 3Gi\n"


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ("4", "did you mean 4Gi?"),
        ("+4", "did you mean 4Gi?"),
        ("-4", "did you mean 4Gi?"),
        ("+10%", "a step is a size"),
        ("--2Gi", "two signs"),
        ("+", "not an amount"),
        ("-x", "not an amount"),
        ("+0", "more than zero"),
    ],
)
def test_a_figure_that_was_not_meant_changes_nothing(machine, figure, words):
    process = machine.holder("4Gi", "ready", "hold", options=["--name", "train"])
    assert process.stdout.readline() == "ready\n"
    refused = machine("resize", "train", figure)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert words in refused.stderr
    assert machine.charged() == 4 * GIB


def test_four_bytes_are_not_asked_for(machine):
    refused = machine("run", "--gpu-memory", "4", "--", "true")
    assert refused.returncode == 2
    assert "--gpu-memory: '4' is 4 bytes" in refused.stderr
    assert "4Gi?" in refused.stderr
    assert machine("gpus", env={"COTENANT_SIMULATE": "", "COTENANT_CONTEXT_MEMORY": "512"}).returncode == 2
