"""Declares kinds of settings: numbers with bounds, durations, sizes, texts of one form, ports and addresses.

A section is a frozen dataclass. The docstring below a field explains it: `loading` reads sections,
`reference` prints them with these explanations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds a number: `least` and `most` are both allowed."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Duration:
    """Marks a number of seconds that is written with its unit: `60s`, `500ms`, `1h30m`."""

    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Size:
    """Marks a number of bytes that is written as a quantity: `256Mi`."""

    may_be_zero: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """Says how a text is written, for the schema of the chart's values; the section itself checks it."""

    pattern: str


Port = Annotated[int, Range(1, 65535)]
Seconds = Annotated[float, Duration()]
Interval = Annotated[float, Duration(least=0.1)]
"""Time between two attempts. Zero would be a hot loop."""
Bytes = Annotated[int, Size()]
BytesOrZero = Annotated[int, Size(may_be_zero=True)]
"""What 0 means is for the setting's explanation to say."""

_DNS_NAME = re.compile(
    r"(?=.{1,253}\Z)(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)


def is_address(text: str) -> bool:
    """Whether it is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_dns_name(text: str, *, wildcard: bool = False) -> bool:
    """Whether it is a DNS name in lower case, as Kubernetes requires; `*.` only with `wildcard`."""
    return _DNS_NAME.fullmatch(text) is not None and (wildcard or "*" not in text)
