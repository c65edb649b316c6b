"""Quantities are read as the API server reads them, and refused as it refuses them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.errors import BadInput
from cotenant.dialects.quantity import format_whole, parse_whole


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("-0", 0),
        ("1", 1),
        ("+3", 3),
        ("4Gi", 4 * 2**30),
        ("4G", 4 * 10**9),
        ("0.5Gi", 2**29),
        (".5Ki", 512),
        ("5.Ki", 5120),
        ("1.5Gi", 1536 * 2**20),
        ("1k", 1000),
        ("1Ki", 1024),
        ("2E", 2 * 10**18),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1.5e1", 15),
        ("3000m", 3),
        ("4000000u", 4),
        ("7000000000n", 7),
        ("9223372036854775807", 2**63 - 1),
        (1024, 1024),
        (0, 0),
    ],
)
def test_what_the_api_server_takes(text: object, amount: int) -> None:
    assert parse_whole(text, "it", "1") == amount


@pytest.mark.parametrize(
    "value",
    [
        "", " ", " 1", "1 ", "1\n", "4GB", "4GiB", "4gi", "4ki", "1K", "e3", "1e", "1e1000", "0x10", "1_000", "1,5", "1.2.3",
        "--1", "\u0661", "\u0664Gi", "inf", "nan", "4 Gi", "50%", "G", ".", "+", "1" * 65, None, True, False, 1.5, [], {}, b"1",
    ],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_by_name(value: object) -> None:
    with pytest.raises(BadInput, match=r"^here: .*is not a quantity: write it like 4Gi$"):
        parse_whole(value, "here", "4Gi")


@pytest.mark.parametrize("value", ["-1", "-4Gi", "-1m", -1])
def test_below_zero_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match=r"here: .* below zero"):
        parse_whole(value, "here", "1")


@pytest.mark.parametrize("value", ["1.5", "1500m", "1m", "4.1Gi", "1e-3", "0.1", "1n"])
def test_extended_resources_have_no_parts(value: str) -> None:
    with pytest.raises(BadInput, match=r"here: .* not a whole number"):
        parse_whole(value, "here", "1")


@pytest.mark.parametrize("value", ["8Ei", "9223372036854775808", "1e99", 2**63])
def test_more_than_can_be_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match=r"here: .* more than there can be"):
        parse_whole(value, "here", "1")


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_that_cannot_even_be_shown_are_refused(sign: int) -> None:
    with pytest.raises(BadInput, match=r"here: a number of too many digits"):
        parse_whole(sign * 10**5000, "here", "1")


@given(st.integers(0, 2**63 - 1))
def test_what_is_written_is_read_back(amount: int) -> None:
    assert parse_whole(format_whole(amount), "it", "1") == amount


@given(st.integers(0, 2**33), st.sampled_from([1, 2**10, 2**20, 2**30]))
def test_the_largest_unit_that_divides_is_written_as_the_api_server_does(count: int, unit: int) -> None:
    text = format_whole(count * unit)
    number = int(text.removesuffix("i").rstrip("KMGTPE"))
    assert text == "0" or number % 1024 != 0 or text.endswith("Ei")


@given(st.one_of(st.text(max_size=80), st.text("0123456789.+-eEKMGTPimkun", max_size=12)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        amount = parse_whole(text, "it", "1")
    except BadInput as refused:
        message = str(refused)
    else:
        assert 0 <= amount < 2**63
        return
    assert message.startswith("it: ")
    assert message.isprintable()
