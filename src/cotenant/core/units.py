"""Parses and formats amounts of memory and time as people write them. Exact: never by way of floats.

Memory follows the rules of Kubernetes quantities, so that a figure means the same in a pod and on a
command line. `4GiB` and `4GB` are accepted too, since they are not ambiguous.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from cotenant.core.errors import BadInput
from cotenant.core.quantity import BINARY, DECIMAL, LONGEST, scale_of, split_number

LARGEST = 2**63 - 1
"""The largest number of bytes that the ledger's store and a slot can hold."""

SMALLEST_BARE = 2**20
"""A smaller number without a unit is not a number of bytes of GPU memory: GiB or MiB were meant."""

ACCEPTED = "4Gi, 4096Mi, 4G, 4294967296"
ACCEPTED_MEMORY = f"{ACCEPTED} or 50% (of a GPU)"
ACCEPTED_DURATION = "90s, 10m, 1h30m, 500ms"

_WITH_B = {f"{unit}B": unit for unit in BINARY | DECIMAL}
"""`GiB` and `GB`, which Kubernetes does not accept."""

_SECONDS = {
    "d": Fraction(86400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
    "us": Fraction(1, 10**6),
    "\u00b5s": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|us|\u00b5s|ns|d|h|m|s)")
_LONGEST_DURATION = 36500 * 86400


@dataclass(frozen=True, slots=True)
class Memory:
    """An amount of GPU memory: bytes, or percent of the GPU on which it is placed."""

    bytes: int | None = None
    percent: Fraction | None = None

    def __post_init__(self) -> None:
        if (self.bytes is None) == (self.percent is None):
            raise BadInput(f"memory: give either bytes or a percentage, for example {ACCEPTED_MEMORY}")
        if self.bytes is not None and not (isinstance(self.bytes, int) and 0 < self.bytes <= LARGEST):
            raise BadInput(f"memory: {self.bytes!r} is not a number of bytes between 1 and {LARGEST}")
        if self.percent is not None and not 0 < self.percent <= 100:
            raise BadInput(f"memory: {_decimal(self.percent)}% is not above 0% and at most 100% of a GPU")

    def on(self, card_bytes: int) -> int:
        """Returns the bytes on a GPU of this size. A percentage rounds down, so that two halves fit."""
        if self.percent is not None:
            return max(1, self.percent.numerator * card_bytes // (100 * self.percent.denominator))
        return self.bytes or 0

    def __str__(self) -> str:
        return f"{_decimal(self.percent)}%" if self.percent is not None else format_bytes(self.bytes or 0)


def parse_bytes(text: str, field: str) -> int:
    """Parses a number of bytes, above zero. `4.1Gi` is not a whole number and rounds up, as in Kubernetes."""
    if text.strip().endswith("%"):
        raise BadInput(
            f"{field}: {_quote(text)} is a share of a GPU; a size is needed here, such as {ACCEPTED}"
        )
    return _bytes(text, field, ACCEPTED)


def parse_memory(text: str, field: str) -> Memory:
    """Parses bytes or a percentage of a GPU."""
    body = text.strip()
    if not body.endswith("%"):
        return Memory(bytes=_bytes(text, field, ACCEPTED_MEMORY))
    value, rest = _number(body[:-1], text, field, ACCEPTED_MEMORY)
    if rest:
        raise _unreadable(text, field, ACCEPTED_MEMORY)
    if not 0 < value <= 100:
        raise BadInput(f"{field}: {_quote(text)} must be above 0% and at most 100% of a GPU")
    return Memory(percent=value)


def check_unit(text: str, field: str) -> None:
    """Refuses a small number without a unit: `4` would be four bytes, and 4Gi is meant. BadInput names what
    was probably meant. A small amount with a unit, such as `4Ki`, is not refused here.
    """
    parts = split_number(text.strip())
    scale = None if parts is None or parts[1][:1] not in ("", "e", "E") else scale_of(parts[1])
    if parts is None or scale is None or not 0 < parts[0] * scale < SMALLEST_BARE:
        return
    number = parts[0] * scale
    shown = _decimal(number)
    meant = [f"{shown}{unit}" for unit, fits in (("Gi", number < 1024), ("Mi", number > 64)) if fits]
    raise BadInput(
        f"{field}: {_quote(text)} is {shown} byte{'s' if number > 1 else ''}, since it has no unit: "
        f"did you mean {' or '.join(meant)}?"
    )


def parse_duration(text: str, field: str) -> float:
    """Parses a duration into seconds. Zero is valid; a number without a unit is not.

    Go's durations, and days. Units go from the largest to the smallest, each at most once.
    """
    body = text.strip()
    total, at, last = Fraction(0), 0, Fraction(_LONGEST_DURATION)
    for match in _DURATION.finditer(body) if len(body) <= LONGEST else ():
        unit = _SECONDS[match[2]]
        if match.start() != at or unit >= last:
            break
        total, at, last = total + Fraction(match[1].removesuffix(".")) * unit, match.end(), unit
    if at == 0 or at != len(body):
        hint = f"; did you mean {body}s?" if re.fullmatch(r"[0-9]{1,9}", body) else ""
        raise BadInput(f"{field}: {_quote(text)} is not a duration: write it like {ACCEPTED_DURATION}{hint}")
    if total > _LONGEST_DURATION:
        raise BadInput(f"{field}: {_quote(text)} is longer than 36500d")
    return float(total)


def format_duration(seconds: float) -> str:
    """Formats seconds to the millisecond, so that `parse_duration` and Go read the same: `1h30m`, `800ms`."""
    whole, thousandths = divmod(round(abs(seconds) * 1000), 1000)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    parts = [f"{amount}{unit}" for amount, unit in ((hours, "h"), (minutes, "m")) if amount]
    if thousandths and whole:
        parts.append(f"{rest}.{thousandths:03d}".rstrip("0") + "s")
    elif thousandths:
        parts.append(f"{thousandths}ms")
    elif rest or not parts:
        parts.append(f"{rest}s")
    return ("-" if seconds < 0 else "") + "".join(parts)


def format_bytes(amount: int, digits: int = 1) -> str:
    """Formats bytes for people in binary units: `4Gi` is exact, `4.0Gi` is a little more.

    It rounds down, so that it never promises more room than there is.
    """
    if amount < 0:
        return "-" + format_bytes(-amount, digits)
    for unit, size in reversed(BINARY.items()):
        if amount >= size:
            whole, rest = divmod(amount, size)
            if rest == 0:
                return f"{whole}{unit}"
            return f"{whole}.{rest * 10**digits // size:0{digits}d}{unit}"
    return str(amount)


def format_exact(amount: int) -> str:
    """Formats bytes so that the text means the same amount when it is typed in: `3.5Gi`, `1152Mi`."""
    for unit, size in reversed(BINARY.items()):
        tenths, rest = divmod(amount * 10, size)
        if amount >= size and rest == 0:
            return f"{tenths // 10}{unit}" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}{unit}"
    return str(amount)


def format_apart(one: int, other: int) -> tuple[str, str]:
    """Formats two amounts with enough digits to tell them apart (`4Gi asked, 4Gi free` is no help)."""
    for digits in range(1, 5):
        texts = format_bytes(one, digits), format_bytes(other, digits)
        if one == other or texts[0] != texts[1]:
            return texts
    return f"{one} bytes", f"{other} bytes"


def _bytes(text: str, field: str, accepted: str) -> int:
    body = text.strip()
    value, suffix = _number(body, text, field, accepted)
    scale = scale_of(_WITH_B.get(suffix, suffix))
    if scale is None:
        raise _unreadable(text, field, accepted, _near_misses(body, suffix))
    amount = value * scale
    if amount <= 0:
        raise BadInput(f"{field}: {_quote(text)} must be more than zero, such as {accepted}")
    if amount > LARGEST:
        raise BadInput(f"{field}: {_quote(text)} is more memory than any GPU has; write it like {accepted}")
    if amount.denominator != 1 and scale < 1000:
        number = body[: len(body) - len(suffix)]
        hint = f" ('m' is a thousandth): did you mean {number}M or {number}Mi?" if suffix == "m" else ""
        raise BadInput(
            f"{field}: {_quote(text)} is not a whole number of bytes{hint or f'; write it like {accepted}'}"
        )
    return -(-amount.numerator // amount.denominator)


def _number(body: str, text: str, field: str, accepted: str) -> tuple[Fraction, str]:
    parts = split_number(body)
    if parts is None:
        raise _unreadable(text, field, accepted)
    return parts


def _near_misses(body: str, suffix: str) -> list[str]:
    """Suggests what was probably meant: `4 gb` may be 4G or 4Gi, `4gi` can only be 4Gi."""
    number, unit = body[: len(body) - len(suffix)], suffix.strip().lower()
    if unit in ("b", "byte", "bytes"):
        return [number]
    match = re.fullmatch(r"([kmgtpe])(i?)b?", unit)
    if match is None:
        return []
    decimal = "k" if match[1] == "k" else match[1].upper()
    binary = f"{match[1].upper()}i"
    return [number + binary] if match[2] else [number + decimal, number + binary]


def _unreadable(text: str, field: str, accepted: str, meant: list[str] | None = None) -> BadInput:
    hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
    return BadInput(f"{field}: {_quote(text)} is not an amount of memory: write it like {accepted}{hint}")


def _quote(text: str) -> str:
    """Quotes input for a message: without control characters, and cut if it is long."""
    return ascii(text if len(text) <= LONGEST else text[:LONGEST] + "...")


def _decimal(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"
