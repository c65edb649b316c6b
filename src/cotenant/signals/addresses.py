"""Refuses connections to link-local and cloud metadata addresses, and in a cluster to loopback.

The author of a scaler could otherwise have the controller fetch the credentials that a cloud gives its node,
or ask what listens in the controller's own pod for nobody but itself. On one machine the author of a scaler
is the user who runs it, so there loopback is where queues are.
The check is made on the address that is connected to: a name is resolved once, and the socket is opened to
what was checked, so a second answer of the DNS changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from cotenant.signals.signal import SignalError

METADATA = tuple(
    ip_network(each)
    for each in (
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure's host
        "192.0.0.192/32",  # Oracle Cloud
        "fd00:ec2::/32",  # AWS
        "fd20:ce::254/128",  # Google Cloud
    )
)
"""Addresses of metadata services that are not link-local. 169.254.169.254 is."""
_NAT64 = ip_network("64:ff9b::/96")
"""IPv6 addresses whose last 32 bits are the IPv4 address that a gateway connects to."""


_THIS_NETWORK = ip_network("0.0.0.0/8")
"""Linux connects 0.0.0.0 to the machine itself."""


def refusal(address: IPv4Address | IPv6Address, *, loopback: bool = True) -> str | None:
    """Says what this address is, if nothing is to be read from it. `loopback`: whether it may be one of this
    machine or pod itself.
    """
    inner = _inner(address)
    if inner is not None and (why := refusal(inner, loopback=loopback)):
        return why
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast or address == IPv4Address("255.255.255.255"):
        return "a multicast address"
    if any(address in each for each in METADATA):
        return "the address of a cloud's metadata service"
    if not loopback and (address.is_loopback or address.is_unspecified or address in _THIS_NETWORK):
        return "a loopback address, the server's own"
    return None


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """Returns the IPv4 address that an IPv6 address stands for."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    tunnelled = address.ipv4_mapped or address.sixtofour
    if tunnelled is None and int(address) >> 32 == 0 and int(address) > 0xFFFF:
        return IPv4Address(int(address))  # ::a.b.c.d, long deprecated, still understood by some
    return tunnelled


async def allowed_addresses(host: str, port: int, *, loopback: bool = True) -> list[str]:
    """Resolves a host to the addresses that may be connected to; SignalError if there is no such address."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else "not a valid name"
        raise SignalError(f"{host} cannot be resolved ({said}): check the host in url") from None
    refused = None
    allowed: list[str] = []
    for *_, address in found:
        text = str(address[0])
        if why := refusal(ip_address(text), loopback=loopback):
            refused = f"{host} is {text}, {why}: signals are not read from there"
        elif text not in allowed:
            allowed.append(text)
    if not allowed:
        raise SignalError(refused or f"{host} has no address: check the host in url")
    return allowed


def system_error(error: BaseException | None) -> str | None:
    """Returns the system's words for a connection that failed: asyncio's own are `Connect call failed`."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
            return os.strerror(error.errno)
        error = error.__cause__ or error.__context__
    return None
