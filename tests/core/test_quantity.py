"""Quantities are read as Kubernetes reads them, exactly."""

from fractions import Fraction

import pytest

from cotenant.core.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("+1", 1),
        ("-1", -1),
        ("5.", 5),
        (".5", Fraction(1, 2)),
        ("1n", Fraction(1, 10**9)),
        ("1u", Fraction(1, 10**6)),
        ("100m", Fraction(1, 10)),
        ("2000m", 2),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("12E+2", 1200),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_every_form(text: str, amount: Fraction | int) -> None:
    assert parse_quantity(text) == amount
    assert isinstance(parse_quantity(text), type(amount))


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1K", "1ki", "1KiB", "1GB", "e3", "1e", "1e1000", "1e3k", "1Kim", "0x1", "1_0", "NaN", "1" * 65],
)  # fmt: skip
def test_what_is_not_one(text: str) -> None:
    assert parse_quantity(text) is None
