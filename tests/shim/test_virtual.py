"""Virtual memory counts as long as any handle or mapping has it, from whichever thread and by whichever address."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest
from shim.slotted import CONTEXT, GIB, MIB, Bench

BEGIN = """
import struct, threading
ok(context())
base = shim()
PART = 32 * MIB

def create(size=PART, share=0):
    prop = ctypes.create_string_buffer(struct.pack("=iiiiQ8x", 1, share, 1, 0, 0))
    handle = c_ulonglong()
    ok(cuda.cuMemCreate(byref(handle), c_size_t(size), prop, c_ulonglong(0)))
    return handle

def reserve(size=PART):
    address = c_ulonglong()
    ok(cuda.cuMemAddressReserve(byref(address), c_size_t(size), c_size_t(0), c_ulonglong(0), c_ulonglong(0)))
    return address.value

def map(address, handle, size=PART, offset=0):
    return cuda.cuMemMap(c_ulonglong(address), c_size_t(size), c_size_t(offset), handle, c_ulonglong(0))

def unmap(address, size=PART):
    return cuda.cuMemUnmap(c_ulonglong(address), c_size_t(size))

def retain(address):
    handle = c_ulonglong()
    ok(cuda.cuMemRetainAllocationHandle(byref(handle), c_void_p(address)))
    return handle

def release(handle):
    return cuda.cuMemRelease(handle)
"""

CASES = {
    "retained by any address inside": """
        for inside in (0, 1, PART // 2, PART - 1):
            handle, address = create(), reserve()
            ok(map(address, handle)); ok(release(handle))
            again = retain(address + inside); agree(base + PART)
            ok(unmap(address)); agree(base + PART)
            ok(release(again)); agree(base)
    """,
    "parts of one handle, mapped apart": """
        handle, address = create(), reserve(2 * PART)
        half = PART // 2
        ok(map(address, handle, half)); ok(map(address + PART, handle, half, half)); ok(release(handle))
        ok(unmap(address, half)); agree(base + PART)
        again = retain(address + PART + half - 1); ok(unmap(address + PART, half)); agree(base + PART)
        ok(release(again)); agree(base)
    """,
    "many mappings, taken down in any order": """
        import random
        random.seed(7)
        addresses = []
        for _ in range(200):
            handle, address = create(2 * MIB), reserve(2 * MIB)
            ok(map(address, handle, 2 * MIB)); ok(release(handle)); addresses.append(address)
        agree(base + 400 * MIB)
        random.shuffle(addresses)
        for left, address in enumerate(addresses, 1):
            ok(unmap(address, 2 * MIB)); agree(base + 400 * MIB - left * 2 * MIB)
    """,
    "a handle that one thread retains and releases while another maps by it": """
        handle, address = create(), reserve()
        ok(map(address, handle))
        stop = threading.Event()
        def count():
            while not stop.is_set():
                ok(release(retain(address)))
        counters = [threading.Thread(target=count) for _ in range(3)]
        for counter in counters: counter.start()
        places = [reserve() for _ in range(8)]
        for _ in range(150):
            for place in places: ok(map(place, handle))
            for place in places: ok(unmap(place))
        ok(map(places[0], handle))
        stop.set()
        for counter in counters: counter.join()
        ok(unmap(address)); ok(release(handle)); agree(base + PART)
        ok(unmap(places[0])); agree(base)
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_both_accounts_agree_at_every_step(bench: Bench, case: str):
    bench.run(BEGIN + textwrap.dedent(CASES[case]))


SHARED = """
import array, socket

def export(handle):
    fd = ctypes.c_int()
    ok(cuda.cuMemExportToShareableHandle(byref(fd), handle, 1, c_ulonglong(0)))
    return fd.value

def take(fd):
    handle = c_ulonglong()
    return cuda.cuMemImportFromShareableHandle(byref(handle), c_void_p(fd), 1), handle

def listen():
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.environ["MEETING"])
    server.listen(8)
    return server

def give(server, fd):
    peer, _ = server.accept()
    socket.send_fds(peer, [b"memory"], [fd])

def fetch():
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(os.environ["MEETING"])
    return socket.recv_fds(peer, 100, 1)[1][0]
"""
MAKER = (
    BEGIN
    + SHARED
    + textwrap.dedent("""
    handle = create(512 * MIB, 1)
    server = listen()
    say("made")
    while (order := hear()) != "end":
        if order == "give": give(server, export(handle))
        if order == "drop": ok(release(handle))
        say(order)
""")
)
IMPORTER = (
    BEGIN
    + SHARED
    + textwrap.dedent("""
    result, handle = take(fetch())
    say(result)
    while (order := hear()) != "end":
        if order == "drop": ok(release(handle))
        if order == "map": address = reserve(512 * MIB); ok(map(address, handle, 512 * MIB))
        if order == "unmap": ok(unmap(address, 512 * MIB))
        if order == "look": info()
        say(order)
""")
)
SIZE = 512 * MIB


class Company:
    """A process that makes memory, and others that import it."""

    def __init__(self, bench: Bench, meeting: str) -> None:
        self.bench, self.meeting = bench, meeting
        self.maker = bench.start(MAKER, MEETING=meeting)

    def importer(self) -> subprocess.Popen[str]:
        self.maker.stdin.write("give\n")
        self.maker.stdin.flush()
        process = self.bench.start(IMPORTER, MEETING=self.meeting)
        assert self.maker.stdout.readline() == "give\n"
        return process

    def tell(self, process: subprocess.Popen[str], order: str) -> None:
        process.stdin.write(order + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == order + "\n"

    def held(self) -> int:
        """What both accounts count beside contexts; they have to agree."""
        usage = self.bench.usage()
        assert usage.used(0) == self.bench.cards.used(self.bench.uuid)
        return usage.used(0) - CONTEXT * len(usage.processes)


@pytest.fixture
def company(make_bench, tmp_path: Path) -> Company:
    bench = make_bench()
    bench.grant(3 * GIB)
    return Company(bench, str(tmp_path / "meeting"))


@pytest.mark.parametrize("end", ["kill", "drop"])
def test_imported_memory_is_charged_to_the_importer_once_its_maker_has_it_no_more(company: Company, end: str):
    importer = company.importer()
    assert company.held() == SIZE
    if end == "kill":
        company.maker.kill()
        company.maker.wait()
    else:
        company.tell(company.maker, "drop")
    assert company.held() == SIZE
    company.tell(importer, "look")
    assert company.held() == SIZE
    company.tell(importer, "map")
    company.tell(importer, "drop")
    assert company.held() == SIZE
    company.tell(importer, "unmap")
    assert company.held() == 0


def test_the_importer_that_ends_first_costs_nothing(company: Company):
    importer = company.importer()
    company.tell(importer, "drop")
    assert company.held() == SIZE
    company.tell(company.maker, "drop")
    assert company.held() == 0


@pytest.mark.parametrize("end", ["kill", "drop"])
def test_of_several_importers_one_is_charged_and_then_the_next(company: Company, end: str):
    importers = [company.importer() for _ in range(3)]
    assert company.held() == SIZE
    for process in (company.maker, *importers[:2]):
        if end == "kill":
            process.kill()
            process.wait()
        else:
            company.tell(process, "drop")
        assert company.held() == SIZE
    company.tell(importers[2], "drop")
    assert company.held() == 0


def test_what_an_importer_holds_last_is_not_given_again(company: Company):
    company.importer()
    company.maker.kill()
    company.maker.wait()
    company.bench.run("""
        ok(context())
        assert alloc(3 * GIB - 3 * 256 * MIB)[0] == OUT_OF_MEMORY
        ok(alloc(3 * GIB - 2 * 256 * MIB - 512 * MIB)[0]); agree(3 * GIB)
    """)


def test_memory_that_was_made_outside_the_slot_is_charged_to_its_importer(make_bench, tmp_path: Path):
    bench = make_bench()
    bench.grant(2 * GIB)
    meeting = str(tmp_path / "meeting")
    maker = bench.start(
        MAKER.replace("base = shim()", "base = 0"), COTENANT_SLOT="", LD_PRELOAD="", MEETING=meeting
    )
    maker.stdin.write("give\n")
    maker.stdin.flush()
    importer = bench.start(IMPORTER, MEETING=meeting)
    assert bench.usage().used(0) == CONTEXT + SIZE
    importer.stdin.write("drop\n")
    importer.stdin.flush()
    importer.stdout.readline()
    assert bench.usage().used(0) == CONTEXT


def test_a_process_that_imports_its_own_memory_pays_once(bench: Bench):
    bench.run(
        BEGIN
        + SHARED
        + textwrap.dedent("""
        for _ in range(3):
            handle = create(PART, 1)
            fd = export(handle)
            result, again = take(fd); ok(result); agree(base + PART)
            ok(release(handle)); agree(base + PART)
            ok(release(again)); agree(base)
            os.close(fd)
    """)
    )
