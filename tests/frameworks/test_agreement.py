"""What this package knows once more, since it imports nothing of Cotenant, is the same as there."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.cli.compose import CONTEXT_MEMORY
from cotenant.core.mode import MODES
from cotenant.core.units import format_bytes, parse_bytes
from cotenant.dialects import aliyun, volcano
from cotenant.frameworks import ShareError, amounts, finding, slot_file, variables
from cotenant.hardware import slots
from cotenant.hardware.enforcers import shim
from cotenant.kube.agent.settings import AgentSettings


@given(
    mode=st.sampled_from(MODES),
    cards=st.lists(
        st.builds(
            slots.CardLimit,
            st.from_regex(r"(GPU|MIG)-[0-9a-f-]{1,70}", fullmatch=True),
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**63 - 1),
        ),
        min_size=1,
        max_size=slots.CARDS,
    ),
)
def test_a_slot_is_read_as_the_machine_wrote_it(mode, cards):
    written = slots.encode(slots.Limits("owner", mode, tuple(cards)))
    assert slot_file.decode(written) == slot_file.Slot(
        mode, tuple(slot_file.SlotCard(*card) for card in cards)
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-1], "it has 2303 bytes, 2304 are expected"),
        (lambda data: b"", "it has 0 bytes"),
        (lambda data: b"COTUSAGE" + data[8:], "not of version 1"),
        (lambda data: data[:8] + struct.pack("<I", 2) + data[12:], "not of version 1"),
        (lambda data: data[:12] + struct.pack("<I", 17) + data[16:], "17 cards and mode 2 are not valid"),
        (lambda data: data[:12] + struct.pack("<I", 0) + data[16:], "0 cards"),
        (lambda data: data[:80] + struct.pack("<Q", 3) + data[88:], "mode 3 are not valid"),
    ],
)
def test_a_damaged_slot_is_refused(tmp_path, change, words):
    data = slots.encode(slots.Limits("owner", "enforce", (slots.CardLimit("GPU-0", 1, 1),)))
    (tmp_path / "limits").write_bytes(change(data))
    with pytest.raises(ShareError, match=words):
        slot_file.read_slot(str(tmp_path))


def test_names_and_sizes_are_those_of_the_shim_and_the_dialects():
    assert slot_file.MODES == MODES
    assert slot_file.MOST_CARDS == slots.CARDS
    assert str(shim.SLOT_IN_CONTAINER) == finding.SLOT_IN_CONTAINER
    assert finding.SLOT_VARIABLE == shim.SLOT_VARIABLE
    assert finding.SHIM == shim.LIBRARY
    assert (variables.GPUSHARE_CONTAINER, variables.GPUSHARE_CARD, variables.GPUSHARE_INDEX) == (
        aliyun._CONTAINER,
        aliyun._CARD,
        aliyun._INDEX,
    )
    assert (variables.VOLCANO_ALLOCATED, variables.VOLCANO_CARD) == (volcano._ALLOCATED, volcano._TOTAL)
    assert variables.CONTEXT == parse_bytes(CONTEXT_MEMORY, "default") == AgentSettings().context_memory


@given(st.integers(0, 2**50 - 1))
def test_amounts_are_written_as_everywhere(amount):
    assert amounts.show(amount) == format_bytes(amount)
