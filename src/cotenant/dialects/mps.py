"""Spells values for NVIDIA's Multi-Process Service (MPS), and refuses those that it would misread.

MPS takes `1.5G` for one megabyte and `abc` for no limit at all, and reports neither. So a value becomes a
number here, and only whole numbers with `M` are ever written. Its megabyte is 2**20 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cotenant.core.errors import BadInput

MIB = 2**20
MOST_MEBIBYTES = 2**26
"""64 TiB: no GPU has more."""
_LIMIT = re.compile(r"([1-9][0-9]{0,8})([MG])")


def check_percentage(value: object, field: str = "active thread percentage") -> int:
    """Returns a share of the SMs, in percent; BadInput unless it is a whole number from 1 to 100."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        raise BadInput(f"{field}: {_shown(value)} is not a whole number from 1 to 100, such as 30")
    return value


def check_mebibytes(value: object, field: str = "memory limit") -> int:
    """Returns a size in MiB; BadInput unless it is a whole number that MPS can keep."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_MEBIBYTES:
        raise BadInput(
            f"{field}: {_shown(value)} is not a whole number of mebibytes from 1 to {MOST_MEBIBYTES}"
        )
    return value


def parse_mebibytes(text: str, field: str = "memory limit") -> int:
    """Reads a size as MPS writes it, such as `1536M` or `3G`, into MiB."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise BadInput(
            f"{field}: {_shown(text)} is not a whole number with M or G, such as 1536M or 3G: MPS would "
            "take it for another size, or for no limit"
        )
    return check_mebibytes(int(found[1]) * (1024 if found[2] == "G" else 1), field)


def mebibytes(size: int) -> int:
    """Returns bytes as MiB, rounded up: MPS must never refuse what was granted. More than any GPU has becomes
    the most that MPS is given.
    """
    return check_mebibytes(min(-(-size // MIB), MOST_MEBIBYTES))


def client_limits(sizes: Sequence[int]) -> str:
    """Spells CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, such as `0=1536M,1=1536M`: bytes on each GPU of a client, in
    the order in which the client sees them.
    """
    return ",".join(f"{at}={mebibytes(size)}M" for at, size in enumerate(sizes))


def _shown(value: object) -> str:
    return repr(value)[:100]
