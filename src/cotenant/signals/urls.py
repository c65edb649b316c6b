"""Parses the URLs of servers, and prints them without their credentials.

A URL that cannot be parsed is never quoted in the error: where a password has an unescaped `/`, a part of it
would be taken for a path and shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote

from cotenant.core.errors import BadInput
from cotenant.signals.addresses import refusal

_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
MOST_HOSTS = 16


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A URL in its parts; `str()` has no credentials."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    path: str
    """Still percent-encoded; empty, or beginning with a slash."""
    query: str = ""
    username: str | None = None
    password: str | None = None

    def __str__(self) -> str:
        return f"{self.scheme}://{','.join(host_and_port(*host) for host in self.hosts)}{self.path}"

    def __repr__(self) -> str:
        return f"ServerUrl({self})"


def host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_url(text: str, schemes: Mapping[str, int], *, several: bool = False) -> ServerUrl:
    """Parses a URL of one of these schemes, each with its default port; BadInput begins with `url:`."""
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in schemes:
        raise BadInput(f"url: it does not begin with {_listed(f'{each}://' for each in schemes)}")
    if not _PRINTABLE.fullmatch(rest):
        raise BadInput("url: it has a space, a control character or no host: write these characters as %20")
    rest, hashed, _ = rest.partition("#")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    credentials, at, names = authority.rpartition("@")
    if hashed or "@" in path:
        raise BadInput("url: a password that contains / ? # @ needs them encoded as %2F %3F %23 %40")
    hosts = tuple(_host(each, schemes[scheme]) for each in names.split(","))
    if len(hosts) > (MOST_HOSTS if several else 1):
        raise BadInput(
            f"url: it names {len(hosts)} hosts; {f'at most {MOST_HOSTS}' if several else 'one'} is allowed"
        )
    username, colon, password = credentials.partition(":")
    return ServerUrl(
        scheme,
        hosts,
        slash + path,
        query,
        unquote(username) or None if at else None,
        unquote(password) if colon else None,
    )


def _host(text: str, default_port: int) -> tuple[str, int]:
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::([0-9]*))?", text)
    plain = re.fullmatch(r"([^:\[\]]*)(?::([0-9]*))?", text)
    found = bracketed or plain
    if found is None:
        raise BadInput(
            "url: a host is a name, an IPv4 address or an IPv6 address in brackets, with a port: queue:6379"
        )
    host, port = found[1], int(found[2][:6]) if found[2] else default_port
    if not 1 <= port <= 65535:
        raise BadInput(f"url: {port} is not a port from 1 to 65535")
    if not (bracketed or _NAME.fullmatch(host)):
        raise BadInput("url: it has no host, or one that is not a name: write it like redis://queue:6379")
    try:
        address = ip_address(host)
    except ValueError:
        if bracketed:
            raise BadInput("url: what is in brackets is not an IPv6 address") from None
        return host, port
    if why := refusal(address):
        raise BadInput(f"url: {host} is {why}: signals are not read from there")
    return host, port


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
