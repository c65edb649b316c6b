"""Who may start on a card, with what, and what people are told if not."""

import asyncio
import os
import time

import msgspec
import pytest
from kube.agent.nodes import CARDS, GIB, NODE, A, B, api_with, make, pod

from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.grant import Share
from cotenant.dialects.pod_grant import GrantUnreadable
from cotenant.hardware import slots as files
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.classic.pod_resources import Holder, PodResourcesUnavailable
from cotenant.kube.agent.slots import starting as module
from cotenant.kube.agent.slots.checking import StartRefused
from cotenant.kube.agent.slots.starting import Starting
from cotenant.kube.api.errors import Unreachable
from cotenant.kube.api.objects import ContainerStatus, PodStatus

pytestmark = pytest.mark.asyncio
MIRROR = {"kubernetes.io/config.mirror": "x"}


class Record:
    """The kubelet's: web/main holds slot-0000."""

    def __init__(self, holders=None) -> None:
        self.listed = holders if holders is not None else {"slot-0000": [("web", "main")]}

    async def holders(self):
        return {
            device: tuple(Holder("default", *each) for each in holders)
            for device, holders in self.listed.items()
        }


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(module, "_ENDING", 0.3)


@pytest.fixture
def starting(slots):
    def compose(api, record=None, **more):
        more.setdefault("living", frozenset)
        return Starting(
            NODE, api, record or Record(), slots, lambda: CARDS, {A: 7 << 20, B: 9 << 20}.__getitem__, **more
        )

    return compose


def on(uuid, gib, **more):
    return Share(uuid, gib * GIB, **more)


async def test_a_container_gets_its_pods_uid_and_its_own_share(starting, slots):
    api = api_with(pod("web", ("side", on(A, 1)), ("main", on(A, 4), on(B, 2))))
    owner = await starting(api).start("slot-0000")
    [made] = slots.read()
    assert made.owner == owner
    assert (owner.uid, owner.container) == ("u-1", "main")
    assert made.limits.owner == "u-1"
    assert made.limits.mode == "enforce"
    assert [(each.uuid, each.bytes, each.context_bytes) for each in made.limits.cards] == [
        (A, 4 * GIB, 7 << 20),
        (B, 2 * GIB, 9 << 20),
    ]


async def test_an_init_container_is_found_as_the_holder_that_follows_it(starting, slots):
    api = api_with(pod("web", ("main", on(A, 4), ("fetch", "warm"))))
    await starting(api).start("slot-0000")
    await starting(api).start("slot-0000")
    assert [slot.owner.container for slot in slots.read()] == ["main"]


async def test_a_restart_makes_the_slot_anew(starting, slots):
    start = starting(api_with(pod("web", ("main", on(A, 16))))).start
    await start("slot-0000")
    with (slots.folder("slot-0000") / "usage").open("rb") as before:
        await start("slot-0000")
        assert os.fstat(before.fileno()).st_nlink == 0


@pytest.mark.parametrize(
    ("own", "labels", "mode"),
    [
        (None, {}, "warn"),
        (None, {"cotenant.dev/enforce": "observe"}, "observe"),
        ("enforce", {"cotenant.dev/enforce": "observe"}, "enforce"),
    ],
)
async def test_the_pod_decides_what_happens_at_a_limit_then_its_namespace_then_the_settings(
    starting, slots, own, labels, mode
):
    annotations = {"cotenant.dev/enforce": own} if own else {}
    api = api_with(pod("web", ("main", on(A, 4)), annotations=annotations), labels=labels)
    await starting(api, mode="warn").start("slot-0000")
    assert slots.read()[0].limits.mode == mode


async def test_a_mode_that_is_none_is_told_with_its_place(starting):
    api = api_with(pod("web", ("main", on(A, 4))), labels={"cotenant.dev/enforce": "maybe"})
    with pytest.raises(
        BadInput, match=r"namespace default: label cotenant.dev/enforce: 'maybe'.*observe, warn"
    ):
        await starting(api).start("slot-0000")


GRANTED = ("main", on(A, 4))
FORGED = pod("web", GRANTED, uid="u-other").metadata.annotations["cotenant.dev/grant"]


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (None, "does not exist any more"),
        (pod("web"), "has no grant"),
        (pod("web", grant=FORGED), "of the pod with UID u-other"),
        (pod("web", grant="{}"), "version"),
        (pod("web", GRANTED, node="n2"), "is bound to n2, and this is n1"),
        (pod("web", GRANTED, node=""), "is bound to no node"),
        (pod("web", GRANTED, annotations=MIRROR), "static pod"),
        (pod("web", GRANTED, phase="Failed"), "has ended"),
        (pod("web", ("other", on(A, 4))), "container 'main' holds no slot"),
        (pod("web", ("other", on(A, 4), ("main",))), "container 'main' holds no slot"),
        (pod("web", ("main", Share("GPU-c", GIB))), "GPU-c was granted and is not on this node"),
        (pod("web", ("main", on(A, 17))), "do not fit"),
    ],
)
async def test_without_a_grant_of_its_own_nothing_starts(starting, slots, there, said):
    with pytest.raises((StartRefused, GrantUnreadable), match=said):
        await starting(api_with(*([there] if there else []))).start("slot-0000")
    assert slots.read() == []


@pytest.mark.parametrize(
    ("holders", "said"),
    [
        ({}, "names no container"),
        ({"slot-0001": [("web", "main")]}, "names no container"),
        ({"slot-0000": [("web", "main"), ("db", "main")]}, "several holders"),
        ({"slot-0000": [("web", "main")], "slot-0001": [("web", "main")]}, "several slots"),
    ],
)
async def test_without_one_holder_by_the_kubelets_record_nothing_starts(starting, slots, holders, said):
    with pytest.raises(StartRefused, match=said):
        await starting(api_with(pod("web", GRANTED)), Record(holders)).start("slot-0000")
    assert slots.read() == []


@pytest.mark.parametrize(
    "shown", [{"main": "1"}, {"main": "7"}, {"main": B}, {"main": "0,1"}, {"main": A, "warm": "1"}]
)
async def test_a_container_that_would_be_shown_another_card_does_not_start(starting, slots, shown):
    """Bind writes an index for older systems. After a boot without one card the driver counts anew."""
    annotations = {f"devices.cotenant.dev/{name}": text for name, text in shown.items()}
    api = api_with(pod("web", ("main", on(A, 4), ("warm",)), annotations=annotations))
    with pytest.raises(StartRefused, match=r"devices.cotenant.dev/\w+: .* does not name the GPUs"):
        await starting(api).start("slot-0000")
    assert slots.read() == []


@pytest.mark.parametrize("shown", ["0,1", "1,0", f"{A},{B}", ""])
async def test_a_container_that_is_shown_its_cards_starts(starting, slots, shown):
    annotations = {"devices.cotenant.dev/main": shown}
    await starting(api_with(pod("web", ("main", on(A, 4), on(B, 4)), annotations=annotations))).start(
        "slot-0000"
    )
    assert slots.read()


async def test_when_the_api_server_cannot_be_asked_nothing_starts(starting, slots):
    api = api_with(pod("web", GRANTED))
    api.fails["get"] = Unreachable("get pods default/web: no answer: refused")
    with pytest.raises(StartRefused, match="cannot be read: get pods default/web: no answer"):
        await starting(api).start("slot-0000")
    assert slots.read() == []


async def test_room_that_was_granted_twice_is_given_once(starting, slots):
    make(slots, "slot-0001", on(A, 10), uid="u-2", name="db")
    api = api_with(pod("web", ("main", on(A, 8))), pod("db", uid="u-2"))
    record = Record({"slot-0000": [("web", "main")], "slot-0001": [("db", "main")]})
    with pytest.raises(StartRefused) as refused:
        await starting(api, record).start("slot-0000")
    assert str(refused.value) == (
        f"pod default/web: 8Gi granted on GPU 0 ({A}) do not fit beside the slots there: default/db/main 10Gi; "
        "the GPU has 16Gi. The kubelet will try again"
    )
    await starting(api_with(pod("web", ("main", on(A, 6))), pod("db", uid="u-2")), record).start("slot-0000")


@pytest.mark.parametrize(
    ("there", "asked"), [(on(A, 16, whole=True), on(A, 1)), (on(A, 1), on(A, 16, whole=True))]
)
async def test_a_whole_card_is_shared_with_nobody(starting, slots, there, asked):
    make(slots, "slot-0001", there, uid="u-2", name="db")
    api = api_with(pod("web", ("main", asked)), pod("db", uid="u-2"))
    with pytest.raises(StartRefused, match="do not fit"):
        await starting(api, Record({"slot-0000": [("web", "main")], "slot-0001": [("db", "main")]})).start(
            "slot-0000"
        )


async def test_a_whole_card_may_have_been_larger_when_it_was_granted(starting, slots):
    await starting(api_with(pod("web", ("main", on(A, 17, whole=True))))).start("slot-0000")
    assert slots.read()


@pytest.mark.parametrize("now", [[], [pod("db", uid="u-2", phase="Succeeded")], [pod("db", uid="u-9")]])
async def test_the_slot_of_a_container_that_is_gone_takes_no_room(starting, slots, now):
    there = make(slots, "slot-0001", on(A, 16), uid="u-2", name="db")
    with (there.folder / "usage").open("rb") as mapped:
        await starting(api_with(pod("web", ("main", on(A, 16))), *now)).start("slot-0000")
        mapped.seek(files._CLOSED)
        assert mapped.read(1) == b"\1", "and nobody can begin to use it any more"
    assert [slot.key for slot in slots.read()] == ["slot-0000"]


async def test_processes_that_live_take_room_whatever_is_said_of_their_pod(starting, slots):
    there = make(slots, "slot-0001", on(A, 16), uid="u-2", name="db")
    held = files.hold(there.folder)
    with pytest.raises(StartRefused, match="do not fit"):
        await starting(api_with(pod("web", ("main", on(A, 16))))).start("slot-0000")
    os.close(held)


async def test_a_start_waits_for_processes_that_are_about_to_leave_the_card(starting, slots):
    there = make(slots, "slot-0001", on(A, 16), uid="u-2", name="deleted-by-force")
    held = files.hold(there.folder)
    start = asyncio.create_task(starting(api_with(pod("web", ("main", on(A, 16))))).start("slot-0000"))
    await asyncio.sleep(0.1)
    assert slots.find("slot-0000") is None
    os.close(held)
    await start
    assert slots.find("slot-0000")


async def test_a_start_waits_for_the_processes_of_the_last_container(starting, slots):
    there = make(slots, "slot-0000", on(A, 4))
    held = files.hold(there.folder)
    start = asyncio.create_task(starting(api_with(pod("web", GRANTED, uid="u-2"))).start("slot-0000"))
    await asyncio.sleep(0.1)
    assert [slot.owner.uid for slot in slots.read()] == ["u-1"]
    os.close(held)
    await start
    assert [slot.owner.uid for slot in slots.read()] == ["u-2"]


async def test_a_start_does_not_wait_for_ever(starting, slots):
    held = files.hold(make(slots, "slot-0000", on(A, 4)).folder)
    with pytest.raises(StartRefused, match="processes of default/web/main still use it"):
        await starting(api_with(pod("web", GRANTED, uid="u-2"))).start("slot-0000")
    os.close(held)


ID, SIDE, SANDBOX = "9f" * 32, "7e" * 32, "5d" * 32


def lives(*owners):
    """The containers of pods that have a process on the node: of another pod, and of these."""
    return lambda: {Owner("u-other", "c1" * 32), *(Owner(*each) for each in owners)}


def ran(there, **ids):
    """A pod whose containers have these IDs."""
    statuses = tuple(ContainerStatus(name, container_id=f"containerd://{id}") for name, id in ids.items())
    return msgspec.structs.replace(there, status=PodStatus("Running", container_statuses=statuses))


@pytest.mark.parametrize("now", [[], [pod("db", uid="u-2", phase="Failed")], [pod("db", uid="u-9")]])
async def test_a_descriptor_passed_to_another_pod_does_not_keep_a_dead_pod_s_room(starting, slots, now):
    there = make(slots, "slot-0001", on(A, 16), uid="u-2", name="db")
    passed = files.hold(there.folder)
    api = api_with(pod("web", ("main", on(A, 16))), *now)
    with pytest.raises(StartRefused, match="do not fit"):
        await starting(api, living=lives(("u-2", ID))).start("slot-0000")
    await starting(api, living=lives()).start("slot-0000")
    assert [slot.key for slot in slots.read()] == ["slot-0000"]
    assert os.pread(passed, 1, files._CLOSED) == b"\1", "who has it can no longer begin to use it"
    os.close(passed)


async def test_a_pod_that_is_there_keeps_its_room_whoever_has_a_lock(starting, slots):
    """The pod is there, so its room is taken, whoever has a lock and whoever has none."""
    there = make(slots, "slot-0001", on(A, 16), uid="u-2", name="db")
    passed = files.hold(there.folder)
    with pytest.raises(StartRefused, match="do not fit"):
        await starting(api_with(pod("web", ("main", on(A, 16))), pod("db", uid="u-2")), living=lives()).start(
            "slot-0000"
        )
    assert there in slots.read()
    os.close(passed)


async def test_a_descriptor_passed_on_does_not_keep_a_slot_from_its_next_owner(starting, slots):
    passed = files.hold(make(slots, "slot-0000", on(A, 4)).folder)
    api = api_with(pod("web", GRANTED, uid="u-2"))
    with pytest.raises(StartRefused, match="processes of default/web/main still use it"):
        await starting(api, living=lives(("u-1", ID))).start("slot-0000")
    await starting(api, living=lives(("u-2", SANDBOX))).start("slot-0000")
    assert [slot.owner.uid for slot in slots.read()] == ["u-2"]
    os.close(passed)


async def test_a_container_that_restarts_waits_for_its_own_processes_only(starting, slots):
    """Another container of the pod, or of another one, may have a descriptor of the slot."""
    passed = files.hold(make(slots, "slot-0000", on(A, 4)).folder)
    api = api_with(ran(pod("web", GRANTED), main=ID, side=SIDE))
    with pytest.raises(StartRefused, match="processes of default/web/main still use it"):
        await starting(api, living=lives(("u-1", ID), ("u-1", SIDE))).start("slot-0000")
    await starting(api, living=lives(("u-1", SIDE), ("u-1", SANDBOX))).start("slot-0000")
    assert os.fstat(passed).st_nlink == 0
    os.close(passed)


async def test_while_a_container_s_id_is_not_known_every_process_of_its_pod_counts(starting, slots):
    held = files.hold(make(slots, "slot-0000", on(A, 4)).folder)
    with pytest.raises(StartRefused, match="still use it"):
        await starting(api_with(pod("web", GRANTED)), living=lives(("u-1", ID))).start("slot-0000")
    os.close(held)


async def test_a_container_s_own_slot_of_another_device_does_not_block_its_restart(starting, slots):
    """A kubelet that lost its checkpoint gives another device than before."""
    make(slots, "slot-0007", on(A, 16))
    await starting(api_with(pod("web", ("main", on(A, 16))))).start("slot-0000")
    assert [slot.key for slot in slots.read()] == ["slot-0000"]


async def test_a_container_s_own_slot_of_another_device_is_waited_for_while_it_is_in_use(starting, slots):
    there = make(slots, "slot-0007", on(A, 1))
    held = files.hold(there.folder)
    api = api_with(ran(pod("web", GRANTED), main=ID))
    with pytest.raises(StartRefused, match="slot-0007: processes of default/web/main still use it"):
        await starting(api, living=lives(("u-1", ID))).start("slot-0000")
    assert slots.read() == [there]
    os.close(held)
    await starting(api).start("slot-0000")
    assert [slot.key for slot in slots.read()] == ["slot-0000"]


async def test_of_forty_that_start_at_once_exactly_those_that_fit_do(starting, slots):
    pods = [pod(f"p{n}", ("main", on(A, 1)), uid=f"u-{n}") for n in range(40)]
    record = Record({f"slot-{n:04d}": [(f"p{n}", "main")] for n in range(40)})
    composed = starting(api_with(*pods), record)
    begun = time.monotonic()
    answers = await asyncio.gather(
        *(composed.start(f"slot-{n:04d}") for n in range(40)), return_exceptions=True
    )
    assert time.monotonic() - begun < 10
    assert sum(isinstance(answer, CotenantError) for answer in answers) == 24
    assert len(slots.read()) == 16


async def test_the_shim_is_there_before_the_slot_is(starting, slots):
    await starting(api_with(pod("web", GRANTED))).start("slot-0000")
    assert (slots.root / "ld.so.preload").read_text() == "/run/cotenant/lib/libcotenant.so\n"
    assert (slots.root / "lib" / "libcotenant.so").read_bytes()[:4] == b"\x7fELF"


async def test_a_kubelet_that_does_not_tell_starts_nothing(starting, slots):
    class Silent(Record):
        async def holders(self):
            raise PodResourcesUnavailable("no socket")

    with pytest.raises(PodResourcesUnavailable):
        await starting(api_with(pod("web", GRANTED)), Silent()).start("slot-0000")
