"""Decides whether an API server is reached through a proxy: `proxy-url` of a kubeconfig, else HTTPS_PROXY,
HTTP_PROXY and NO_PROXY of the environment, read as client-go reads them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, unquote, urlsplit

from cotenant.kube.api.errors import BadKubeconfig

_IP = IPv4Address | IPv6Address
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Proxy:
    """An HTTP or HTTPS proxy that understands CONNECT."""

    url: str
    """Without user and password: it is shown in messages."""
    authorization: str = field(default="", repr=False)
    """The value of Proxy-Authorization, from the user and password of the URL."""


def proxy_from_url(text: str, where: str) -> Proxy:
    """Parses a proxy's URL. `where` is what an error calls it; the text, which may hold a password, is never
    in a message.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, SplitResult("", "", "", "", "")
    if parts.scheme in {"socks5", "socks5h"}:
        raise BadKubeconfig(f"{where}: {parts.scheme} proxies are not supported: use an http or https proxy")
    if parts.scheme not in _PORTS or not host or port == 0:
        raise BadKubeconfig(f"{where}: not the address of a proxy, such as http://host:3128")
    authorization = ""
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    host = f"[{host}]" if ":" in host else host
    return Proxy(f"{parts.scheme}://{host}:{port or _PORTS[parts.scheme]}", authorization)


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> Proxy | None:
    """Returns the proxy for this server, None if it is reached directly. As with Go's `ProxyFromEnvironment`,
    the variables may be in upper or lower case, and loopback addresses never go through a proxy.
    """
    parts = urlsplit(server)
    name, text = _variable(environ, f"{parts.scheme.upper()}_PROXY")
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    if not text or _is_loopback(host) or _is_excluded(host, port, _variable(environ, "NO_PROXY")[1]):
        return None
    try:
        complete = bool(urlsplit(text).scheme and urlsplit(text).netloc)
    except ValueError:
        complete = True
    return proxy_from_url(text if complete else f"http://{text}", name)


def _variable(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    return next(((each, environ[each]) for each in (name, name.lower()) if environ.get(each)), (name, ""))


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_excluded(host: str, port: int, no_proxy: str) -> bool:
    """Whether an entry of NO_PROXY matches: `*`, an address, a CIDR, a host with its subdomains, or, with a
    leading dot or `*.`, subdomains only. All but a CIDR may end with a port.
    """
    address = _address(host)
    return any(_matches(each.strip().lower(), host, port, address) for each in no_proxy.split(","))


def _matches(entry: str, host: str, port: int, address: _IP | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            network = ip_network(entry, strict=False)
        except ValueError:
            return False
        return address is not None and address in network
    name, only_port = _split_port(entry)
    if only_port not in {"", str(port)} or not name:
        return False
    excluded = _address(name)
    if excluded is not None:
        return excluded == address
    if name.startswith("*."):
        name = name[1:]
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, str]:
    """An IPv6 address has a port only if it is in brackets."""
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name, port.removeprefix(":")
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _address(text: str) -> _IP | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
