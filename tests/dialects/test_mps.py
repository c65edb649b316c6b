"""What MPS would misread is refused before it is sent."""

import pytest

from cotenant.core.errors import BadInput
from cotenant.dialects.mps import check_mebibytes, check_percentage, client_limits, mebibytes, parse_mebibytes

GIB = 2**30


@pytest.mark.parametrize("value", [0, 101, -5, True, 30.0, 33.3, "30", "abc", None, float("nan"), 10**400])
def test_a_percentage_is_a_whole_number_from_1_to_100(value):
    with pytest.raises(BadInput, match=r"^active thread percentage: .* is not a whole number from 1 to 100"):
        check_percentage(value)


@pytest.mark.parametrize("value", [1, 30, 50, 100])
def test_percentages_that_mps_understands(value):
    assert check_percentage(value) == value


@pytest.mark.parametrize(
    "text",
    [
        *("1.5G", "abc", "0", "0M", "-5M", "-5", "101", "5", "", "3g", "3 G", "3GB", "3Gi", "1e3M", "+3G"),
        *("03G", "3G\n", "\u0663G", "3G;quit", "9" * 400 + "M", "999999999G"),
    ],
)
def test_a_size_that_mps_would_take_for_another_is_refused(text):
    with pytest.raises(BadInput, match=r"^memory limit: "):
        parse_mebibytes(text)


@pytest.mark.parametrize(("text", "size"), [("1536M", 1536), ("3G", 3072), ("1M", 1), ("80G", 81920)])
def test_sizes_that_mps_understands(text, size):
    assert parse_mebibytes(text) == size


@pytest.mark.parametrize("value", [0, -1, 1.5, "5", True, 2**26 + 1])
def test_a_number_of_mebibytes_is_whole_and_bounded(value):
    with pytest.raises(BadInput, match=r"^memory limit: "):
        check_mebibytes(value)


def test_a_grant_is_rounded_up_so_that_mps_never_refuses_what_was_granted():
    assert mebibytes(1) == 1
    assert mebibytes(GIB + 1) == 1025
    assert mebibytes(2**63 - 1) == 2**26, "a grant of any size can be written"
    assert client_limits([3 * GIB // 2]) == "0=1536M"
    assert client_limits([3 * GIB, 3 * GIB]) == "0=3072M,1=3072M"
