"""Amounts as people write them: exact, and an error shows what to write instead."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.errors import BadInput
from cotenant.core.units import (
    LARGEST,
    Memory,
    check_unit,
    format_apart,
    format_bytes,
    format_exact,
    parse_bytes,
    parse_duration,
    parse_memory,
)

GI = 2**30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4Gi", 4 * GI),
        ("4096Mi", 4 * GI),
        ("4194304Ki", 4 * GI),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("4G", 4 * 10**9),
        ("4000M", 4 * 10**9),
        ("4000000k", 4 * 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("4GiB", 4 * GI),
        ("4GB", 4 * 10**9),
        ("512kB", 512_000),
        ("4294967296", 4 * GI),
        ("4.5Gi", 9 * GI // 2),
        (".5Gi", GI // 2),
        ("5.Gi", 5 * GI),
        ("+4Gi", 4 * GI),
        ("4e9", 4 * 10**9),
        ("4E9", 4 * 10**9),
        ("4E+9", 4 * 10**9),
        ("40000e-2", 400),
        ("1E", 10**18),
        ("4294967296000m", 4 * GI),
        ("5000000u", 5),
        ("7000000000n", 7),
        ("0004Gi", 4 * GI),
        ("  4Gi\n", 4 * GI),
        ("1", 1),
        ("9223372036854775807", LARGEST),
    ],
)
def test_sizes_as_kubernetes_writes_them(text: str, expected: int) -> None:
    assert parse_bytes(text, "gpu-memory") == expected


def test_a_part_of_a_large_unit_rounds_up_to_a_byte_as_in_kubernetes() -> None:
    assert parse_bytes("4.1Gi", "gpu-memory") == 4402341479
    assert parse_bytes("1.0001k", "gpu-memory") == 1001


def test_no_float_is_involved() -> None:
    assert parse_bytes("4503599627370497.5Ki", "gpu-memory") == 4503599627370497 * 1024 + 512
    assert parse_bytes("0.1e1", "gpu-memory") == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-", "+", ".", "Gi", "%", "e9", "nan", "inf", "-inf", "infinity", "None", "0x10", "1_000"),
        *("4 Gi", "4Gi4", "4Gi Gi", "4,5Gi", "4Zi", "4Yi", "4Gib", "--4Gi", "4..5Gi", "1e", "1e+", "1e1e1"),
        *(
            "\u0664Gi",
            "\uff14Gi",
            "4Gi\0",
            "4\nGi",
            "4\uff27i",
            "½Gi",
            "4i",
            "4K",
            "4KB",
            "4KI",
            "4mi",
            "4bytes",
        ),
        *("0", "0Gi", "0.0", "-4Gi", "-0", "0e9", "0m", "+0"),
        *("1e999", "1e999999999", "9223372036854775808", "8Ei", "99999999999999Pi", "9" * 65, "9" * 10_000),
        *("1m", "1500m", "1u", "1n", "0.5", "1.5", "1e-1", "1e-999", "15e-1"),
    ],
)
def test_what_is_no_size_is_refused_with_the_field_and_the_accepted_forms(text: str) -> None:
    for parse in (parse_bytes, parse_memory):
        with pytest.raises(BadInput) as error:
            parse(text, "gpu-memory")
        message = str(error.value)
        assert message.startswith("gpu-memory: ")
        assert "4Gi" in message or "did you mean" in message
        assert len(message) < 300
        assert message.isprintable()
        assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("4gb", "did you mean 4G or 4Gi?"),
        ("4g", "did you mean 4G or 4Gi?"),
        ("4 gb", "did you mean 4G or 4Gi?"),
        ("4gi", "did you mean 4Gi?"),
        ("4 GiB", "did you mean 4Gi?"),
        ("4gib", "did you mean 4Gi?"),
        ("512KB", "did you mean 512k or 512Ki?"),
        ("4096mb", "did you mean 4096M or 4096Mi?"),
        ("4096B", "did you mean 4096?"),
        ("2.5m", "did you mean 2.5M or 2.5Mi?"),
    ],
)
def test_a_near_miss_is_answered_with_what_was_probably_meant(text: str, hint: str) -> None:
    with pytest.raises(BadInput, match="gpu-memory") as error:
        parse_bytes(text, "gpu-memory")
    assert str(error.value).endswith(hint)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("4", "'4' is 4 bytes, since it has no unit: did you mean 4Gi?"),
        (" 1 ", "' 1 ' is 1 byte, since it has no unit: did you mean 1Gi?"),
        ("+24", "did you mean 24Gi?"),
        ("0080", "did you mean 80Gi or 80Mi?"),
        ("512", "did you mean 512Gi or 512Mi?"),
        ("3803", "did you mean 3803Mi?"),
        ("4.0", "did you mean 4Gi?"),
        ("4e0", "did you mean 4Gi?"),
        ("1.5", "did you mean 1.5Gi?"),
        ("4e3", "did you mean 4000Mi?"),
        ("1048575", "did you mean 1048575Mi?"),
    ],
)
def test_a_small_number_without_a_unit_is_not_meant_as_bytes(text: str, hint: str) -> None:
    with pytest.raises(BadInput) as error:
        check_unit(text, "gpu-memory")
    assert str(error.value).startswith("gpu-memory: ")
    assert str(error.value).endswith(hint)
    for meant in hint.partition("did you mean ")[2].rstrip("?").split(" or "):
        check_unit(meant, "gpu-memory")


@pytest.mark.parametrize(
    "text", ["1048576", "4294967296", "4Gi", "1Ki", "4e9", "2E", "500m", "50%", "0", "", "x", "9" * 9999]
)
def test_a_number_with_a_unit_or_large_enough_for_bytes_is_not_questioned(text: str) -> None:
    check_unit(text, "gpu-memory")


def test_every_suggestion_is_itself_accepted() -> None:
    for text in ("4gb", "4k i", "4KB", "4MIB", "4tb", "4pb", "4eb", "4B", "1.5m"):
        with pytest.raises(BadInput) as error:
            parse_bytes(text, "f")
        _, _, hint = str(error.value).partition("did you mean ")
        for meant in hint.rstrip("?").split(" or "):
            if meant:
                assert parse_bytes(meant, "f") > 0


@given(st.text(max_size=40))
def test_any_text_is_either_a_size_in_range_or_bad_input(text: str) -> None:
    try:
        size = parse_bytes(text, "f")
    except BadInput:
        return
    assert 0 < size <= LARGEST


@given(st.from_regex(r"\A[0-9]{1,6}(\.[0-9]{1,4})?(Ki|Mi|Gi|Ti|k|M|G|T|m|e[0-9])?\Z"))
def test_parsing_agrees_with_arithmetic(text: str) -> None:
    scale = {
        "Ki": 2**10,
        "Mi": 2**20,
        "Gi": 2**30,
        "Ti": 2**40,
        "k": 10**3,
        "M": 10**6,
        "G": 10**9,
        "T": 10**12,
    }
    suffix = text.lstrip("0123456789.")
    unit = Fraction(1, 1000) if suffix == "m" else Fraction(scale.get(suffix, 1))
    if suffix.startswith("e"):
        unit = Fraction(10 ** int(suffix[1:]))
    exact = Fraction(text.removesuffix(suffix)) * unit
    try:
        size = parse_bytes(text, "f")
    except BadInput:
        assert exact == 0 or exact > LARGEST or (exact.denominator > 1 and unit < 1000)
    else:
        assert size - 1 < exact <= size


@given(st.integers(1, LARGEST))
def test_what_people_are_shown_is_never_more_than_there_is_and_nearly_all_of_it(size: int) -> None:
    shown = parse_bytes(format_bytes(size), "f")
    assert shown <= size
    assert size - shown <= size / 10


@given(st.integers(1, 1023), st.sampled_from(["", "Ki", "Mi", "Gi", "Ti", "Pi"]))
def test_whole_units_survive_being_shown_and_read(number: int, unit: str) -> None:
    text = f"{number}{unit}"
    assert format_bytes(parse_bytes(text, "f")) == text


def test_bytes_for_people() -> None:
    assert format_bytes(4 * GI) == "4Gi"
    assert format_bytes(4 * GI + 1) == "4.0Gi"
    assert format_bytes(4 * GI - 1) == "3.9Gi"
    assert format_bytes(int(3.25 * GI)) == "3.2Gi"
    assert format_bytes(512 * 2**20) == "512Mi"
    assert format_bytes(0) == "0"
    assert format_bytes(1023) == "1023"
    assert format_bytes(-GI) == "-1Gi"


@given(st.integers(0, 2**45), st.integers(0, 2**45))
def test_two_different_amounts_never_read_the_same(one: int, other: int) -> None:
    texts = format_apart(one, other)
    assert (texts[0] == texts[1]) == (one == other)


def test_amounts_close_together_get_the_digits_they_need() -> None:
    assert format_apart(4 * GI, 3 * GI) == ("4Gi", "3Gi")
    assert format_apart(4 * GI, 4 * GI - 2**24) == ("4Gi", "3.9Gi")
    assert format_apart(4 * GI + 2**25, 4 * GI + 2**24) == ("4.03Gi", "4.01Gi")
    assert format_apart(4 * GI + 1, 4 * GI + 2) == ("4294967297 bytes", "4294967298 bytes")


@pytest.mark.parametrize(
    ("text", "percent"),
    [("50%", Fraction(50)), ("12.5%", Fraction(25, 2)), ("100%", Fraction(100)), ("0.1%", Fraction(1, 10))],
)
def test_a_share_of_a_card(text: str, percent: Fraction) -> None:
    memory = parse_memory(text, "gpu-memory")
    assert memory == Memory(percent=percent)
    assert str(memory) == text
    assert memory.on(80 * GI) == int(80 * GI * percent / 100)


@pytest.mark.parametrize(
    "text", ["0%", "-5%", "100.1%", "1e9%", "%50", "50%%", "50 %", "50Gi%", "\u0665%", "nan%"]
)
def test_a_share_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^gpu-memory: .*%"):
        parse_memory(text, "gpu-memory")


def test_where_a_size_is_needed_a_share_is_refused() -> None:
    with pytest.raises(BadInput, match="a size is needed here"):
        parse_bytes("50%", "gpu-memory")


@given(st.integers(1, 2**40), st.integers(1, 100))
def test_shares_that_add_up_to_a_card_fit_on_it(card: int, parts: int) -> None:
    assert parts * Memory(percent=Fraction(100, parts)).on(card) <= max(card, parts)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90s", 90), ("10m", 600), ("1h30m", 5400), ("500ms", 0.5), ("1.5h", 5400), ("1d", 86400)),
        *(("1h0m1s", 3601), ("0s", 0), ("1m1ms", 60.001), (" 5s ", 5)),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "wait-timeout") == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "90",
        "-5s",
        "5 s",
        "1m1h",
        "1s1s",
        "5S",
        "5sec",
        "1h30",
        "nan",
        "inf",
        "1e3s",
        "\u0665s",
        "5s!",
        "9" * 99 + "s",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^wait-timeout: .*90s, 10m"):
        parse_duration(text, "wait-timeout")


def test_a_bare_number_is_answered_with_seconds_and_a_century_is_enough() -> None:
    with pytest.raises(BadInput, match=r"did you mean 90s\?"):
        parse_duration("90", "wait-timeout")
    with pytest.raises(BadInput, match="longer than"):
        parse_duration("99999d", "wait-timeout")


@given(st.text(alphabet="0123456789hmsd. ", max_size=12))
def test_any_text_is_a_duration_or_bad_input(text: str) -> None:
    try:
        seconds = parse_duration(text, "f")
    except BadInput:
        return
    assert seconds >= 0


@pytest.mark.parametrize(
    ("size", "percent"),
    [
        (None, None),
        (1, Fraction(1)),
        (0, None),
        (-1, None),
        (LARGEST + 1, None),
        (None, Fraction(0)),
        (None, Fraction(101)),
    ],
)
def test_memory_that_means_nothing_cannot_be_made(size: int | None, percent: Fraction | None) -> None:
    with pytest.raises(BadInput, match=r"^memory: "):
        Memory(size, percent)


@given(st.integers(1, 1 << 50))
def test_an_exact_text_means_the_amount_it_was_made_of(amount: int) -> None:
    assert parse_bytes(format_exact(amount), "memory") == amount


@pytest.mark.parametrize(
    ("amount", "text"), [(7 << 29, "3.5Gi"), (9 << 27, "1152Mi"), (4 << 30, "4Gi"), (1023, "1023")]
)
def test_an_exact_text_is_as_short_as_it_can_be(amount: int, text: str) -> None:
    assert format_exact(amount) == text
