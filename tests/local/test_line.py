"""The pass over the ledger: who is reaped, who is served, what is left charged."""

from dataclasses import replace

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput, NoRoom
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.hardware import slots
from cotenant.hardware.nvml import CardProcess, CardReading, NoDriver
from cotenant.local import line, slot_folder
from cotenant.local.machine import now
from cotenant.local.rebuild import rebuild
from cotenant.local.resize import resize
from cotenant.local.snapshot import snapshot, to_json
from cotenant.local.wake import Bell

GIB = 1 << 30


def join(machine, job, *, wait=True, rename=True):
    return line.join(machine, job, wait=wait, rename=rename)


def granted(machine):
    return {job.id: job for job in machine.store.jobs() if job.shares}


def with_slot(machine, job):
    """A job that was granted and whose slot is made, as its runner does it."""
    job = join(machine, replace(job, slot=machine.home.slots / job.id)).job
    slot_folder.make(machine, job)
    return job


def test_what_fits_is_charged_at_once(plain_machine, make_job):
    joined = join(plain_machine, make_job("a", 10 * GIB))
    assert joined.job.shares == granted(plain_machine)["a"].shares == (Share("GPU-0", 10 * GIB),)


def test_what_does_not_fit_waits_and_is_told_why(plain_machine, make_job):
    for id in "ab":
        join(plain_machine, make_job(id, 13 * GIB))
    first = join(plain_machine, make_job("c", 4 * GIB))
    second = join(plain_machine, make_job("d", 4 * GIB))
    assert (first.place, second.place) == (1, 2)
    assert str(second.refusal) == "4Gi asked, largest free room 3Gi on GPU 0"


def test_without_waiting_nothing_is_left_behind(plain_machine, make_job):
    for id in "ab":
        join(plain_machine, make_job(id, 13 * GIB))
    joined = join(plain_machine, make_job("c", 4 * GIB), wait=False)
    assert not joined.job.shares
    assert set(granted(plain_machine)) == {job.id for job in plain_machine.store.jobs()} == {"a", "b"}


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        (Demand(Memory(bytes=17 * GIB)), "the largest GPU has 16Gi"),
        (Demand(whole=3), "3 whole GPUs asked, there are 2"),
        (Demand(Memory(bytes=GIB), models=("H100",)), "H100"),
        (Demand(Memory(bytes=GIB), uuids=("GPU-9",)), "GPU-9"),
    ],
)
def test_what_can_never_be_is_bad_input_and_not_kept(plain_machine, make_job, demand, words):
    with pytest.raises(BadInput, match=words):
        join(plain_machine, make_job("a", demand=demand))
    assert plain_machine.store.jobs() == []


def test_the_dead_are_reaped_by_whoever_comes_next(plain_machine, make_job, dead):
    join(plain_machine, make_job("a", 16 * GIB, process=dead))
    join(plain_machine, make_job("b", 16 * GIB, process=dead))
    join(plain_machine, make_job("c", 16 * GIB))
    assert set(granted(plain_machine)) == {"c"}


def test_a_held_slot_keeps_the_room_of_a_dead_command(plain_machine, make_job, dead):
    job = with_slot(plain_machine, make_job("a", process=dead))
    held = slots.hold(job.slot)
    line.release_ended(plain_machine)
    assert set(granted(plain_machine)) == {"a"}
    slots.os.close(held)
    line.release_ended(plain_machine)
    assert granted(plain_machine) == {}
    assert not job.slot.exists()


def test_who_frees_room_grants_it_and_rings(plain_machine, make_job, dead):
    join(plain_machine, make_job("a", 16 * GIB))
    join(plain_machine, make_job("b", 16 * GIB))
    waiting = join(plain_machine, make_job("c", 10 * GIB)).job
    bell = Bell("c")
    line.withdraw(plain_machine, "b")
    assert bell.wait(0)
    assert plain_machine.store.find(waiting.id).shares
    bell.close()


def test_room_is_given_back_also_when_the_cards_cannot_be_read(plain_machine, plain_cards, make_job, dead):
    for id in "ab":
        join(plain_machine, make_job(id, 16 * GIB))
    join(plain_machine, make_job("c", 16 * GIB))

    def read():
        raise NoDriver("gone")

    plain_cards.read = read
    line.withdraw(plain_machine, "a")
    assert {job.id for job in plain_machine.store.jobs()} == {"b", "c"}
    del plain_cards.read
    line.release_ended(plain_machine)
    assert set(granted(plain_machine)) == {"b", "c"}


def test_memory_outside_grants_is_not_given_away(plain_machine, plain_cards, make_job):
    plain_cards.cards[0] = plain_cards.cards[0]._replace(used=15 * GIB, processes=(CardProcess(1, 15 * GIB),))
    plain_cards.cards[1] = plain_cards.cards[1]._replace(used=15 * GIB)
    assert not join(plain_machine, make_job("a", 2 * GIB)).job.shares
    plain_cards.cards[1] = plain_cards.cards[1]._replace(used=14 * GIB)
    assert line.ask_again(plain_machine, "a").job.shares == (Share("GPU-1", 2 * GIB),)


def test_a_moment_s_unexplained_memory_is_looked_at_again(plain_machine, plain_cards, make_job):
    """Somebody allocates between two readings of one card: the room is there all the same."""
    calm = plain_cards.cards[0]
    join(plain_machine, make_job("a", 4 * GIB))
    readings = [calm._replace(used=3 * GIB), calm]

    def read():
        plain_cards.cards[0] = readings.pop(0) if readings else calm
        return type(plain_cards).read(plain_cards)

    object.__setattr__(plain_machine, "cards", type("Once", (), {"read": staticmethod(read)}))
    sight = line.read_gpus(plain_machine, plain_machine.store.jobs(), {})
    assert sight.outside["GPU-0"] == 0


def test_a_big_demand_is_not_passed_for_ever(plain_machine, make_job):
    join(plain_machine, make_job("a", 10 * GIB))
    join(plain_machine, make_job("b", 10 * GIB))
    old = now() - plain_machine.patience - 1
    join(plain_machine, make_job("big", 14 * GIB, since=old))
    held = plain_machine.store.find("big").held
    assert len(held) == 1
    small = join(plain_machine, make_job("small", 6 * GIB)).job
    assert small.shares[0].uuid not in held
    late = join(plain_machine, make_job("late", 6 * GIB))
    assert "held for big" in str(late.refusal)


def test_a_taken_name_gets_a_number_or_is_refused(plain_machine, make_job):
    join(plain_machine, make_job("a", name="train"))
    assert join(plain_machine, make_job("b", name="train")).job.name == "train-2"
    with pytest.raises(BadInput, match="train is taken"):
        join(plain_machine, make_job("c", name="train"), rename=False)


def test_a_lost_card_keeps_its_grants_and_takes_no_new_ones(plain_machine, plain_cards, make_job):
    join(plain_machine, make_job("a", 4 * GIB))
    plain_cards.cards, plain_cards.lost = plain_cards.cards[1:], (0,)
    other = join(plain_machine, make_job("b", 4 * GIB)).job
    assert other.shares[0].uuid == "GPU-1"
    view = snapshot(plain_machine)
    assert [(card.gpu.uuid, card.gpu.healthy, card.granted) for card in view.gpus] == [
        ("GPU-0", False, 4 * GIB),
        ("GPU-1", True, 4 * GIB),
    ]
    assert view.gpus[0].gpu.memory == 16 * GIB


def test_a_card_that_was_taken_out_is_forgotten(plain_machine, plain_cards, make_job):
    join(plain_machine, make_job("a", 4 * GIB, demand=Demand(Memory(bytes=GIB), uuids=("GPU-1",))))
    plain_cards.cards = plain_cards.cards[1:]
    join(plain_machine, make_job("b", 4 * GIB))
    assert [card.gpu.uuid for card in snapshot(plain_machine).gpus] == ["GPU-1"]


def test_a_lost_ledger_is_rebuilt_from_the_slots_that_live(plain_machine, make_job, dead):
    lives, ended = (with_slot(plain_machine, make_job(id)) for id in ("lives", "ended"))
    slot_folder.write_record(replace(ended, process=dead))
    plain_machine.store.close()
    plain_machine.home.ledger.write_bytes(b"this is not a ledger" * 100)
    aside = rebuild(plain_machine)
    assert aside.read_bytes().startswith(b"this is not")
    assert granted(plain_machine) == {"lives": lives}
    assert not ended.slot.exists()


def test_a_slot_without_a_record_is_charged_by_its_limits(plain_machine, make_job):
    job = with_slot(plain_machine, make_job("a", 6 * GIB))
    held = slots.hold(job.slot)
    (job.slot / "grant.json").write_text("{")
    rebuild(plain_machine)
    assert granted(plain_machine)["a"].shares == job.shares
    slots.os.close(held)


def test_resize_goes_up_if_there_is_room(plain_machine, make_job):
    with_slot(plain_machine, make_job("a", 4 * GIB))
    done = resize(plain_machine, "a", Memory(bytes=6 * GIB))
    assert done.after == plain_machine.store.find("a")
    assert slots.read_limits(done.after.slot).cards[0].bytes == 6 * GIB == done.after.grant.memory


def test_resize_beyond_the_room_changes_nothing(plain_machine, make_job):
    job = with_slot(plain_machine, make_job("a", 4 * GIB))
    other = Demand(Memory(bytes=10 * GIB), uuids=(job.shares[0].uuid,))
    join(plain_machine, make_job("b", demand=other))
    with pytest.raises(NoRoom, match="7Gi asked, 6Gi free on GPU 0"):
        resize(plain_machine, "a", Memory(bytes=7 * GIB))
    assert plain_machine.store.find("a") == job
    assert slots.read_limits(job.slot).cards[0].bytes == 4 * GIB


def test_resize_down_frees_room_for_who_waits(plain_machine, make_job):
    for id in "ab":
        with_slot(plain_machine, make_job(id, 13 * GIB))
    join(plain_machine, make_job("c", 4 * GIB))
    resize(plain_machine, "a", Memory(bytes=12 * GIB))
    assert plain_machine.store.find("c").shares


def test_resize_below_what_is_in_use_changes_nothing(plain_machine, plain_cards, make_job):
    job = with_slot(plain_machine, make_job("a", 4 * GIB))
    process = CardProcess(job.process.pid, 3 * GIB)
    plain_cards.cards[0] = plain_cards.cards[0]._replace(used=3 * GIB, processes=(process,))
    with pytest.raises(NoRoom, match="2Gi asked for a, 3Gi in use"):
        resize(plain_machine, "a", Memory(bytes=2 * GIB))
    assert plain_machine.store.find("a") == job
    assert slots.read_limits(job.slot).cards[0].bytes == 4 * GIB


def test_resize_does_not_pass_the_line(plain_machine, make_job):
    for id in "ab":
        with_slot(
            plain_machine, make_job(id, 4 * GIB, demand=Demand(Memory(bytes=4 * GIB), placement="spread"))
        )
    join(plain_machine, make_job("big", 14 * GIB, since=now() - plain_machine.patience - 1))
    (held,) = plain_machine.store.find("big").held
    name = next(id for id in "ab" if plain_machine.store.find(id).shares[0].uuid == held)
    with pytest.raises(NoRoom, match="held for big"):
        resize(plain_machine, name, Memory(bytes=5 * GIB))


@pytest.mark.parametrize(("demand", "words"), [(Demand(whole=1), "whole GPUs"), (None, "nothing named")])
def test_what_cannot_be_resized(plain_machine, make_job, demand, words):
    if demand is not None:
        with_slot(plain_machine, make_job("a", demand=demand))
    with pytest.raises(BadInput, match=words):
        resize(plain_machine, "a", Memory(bytes=GIB))


def test_a_snapshot_tells_cards_grants_and_the_line(plain_machine, plain_cards, make_job):
    for id in "ab":
        join(plain_machine, make_job(id, 13 * GIB))
    join(plain_machine, make_job("c", 4 * GIB))
    told = to_json(plain_machine, snapshot(plain_machine))
    assert [card["free"] for card in told["gpus"]] == [3 * GIB, 3 * GIB]
    assert [grant["limit"] for grant in told["grants"]] == [13 * GIB, 13 * GIB]
    assert [(each["name"], each["place"]) for each in told["line"]] == [("c", 1)]
    assert told["line"][0]["reason"] == "4Gi asked, largest free room 3Gi on GPU 0"


def test_percentages_are_of_the_card_they_land_on(plain_machine, plain_cards, make_job):
    from fractions import Fraction

    plain_cards.cards[1] = CardReading(GPU("GPU-1", 1, "A100", 80 * GIB), used=0)
    half = Demand(Memory(percent=Fraction(50)), uuids=("GPU-1",))
    assert join(plain_machine, make_job("a", demand=half)).job.grant.memory == 40 * GIB
