"""Fetches short documents over HTTP: bounded in time and size, without redirects, cookies and proxies."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import aiohttp
import msgspec
from aiohappyeyeballs import AddrInfoType
from yarl import URL

from cotenant.signals.addresses import refusal, system_error
from cotenant.signals.checking import SECURE
from cotenant.signals.credentials import Credentials, read_credentials, tls_context, tls_failure
from cotenant.signals.servers import Access, CredentialsRefused, Servers, turn
from cotenant.signals.signal import Secrets, SignalError
from cotenant.signals.specification import FromSecret, HttpAccess, RabbitMQ, Tls
from cotenant.signals.urls import ServerUrl, host_and_port

TIMEOUT = 5.0
"""Seconds for one answer, with the connection."""
LARGEST = 1 << 20
"""Bytes of an answer."""
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    def json(self, what: str) -> Any:
        """Decodes the body. NaN and Infinity, which some servers write, are read as numbers."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            pass
        except RecursionError:
            raise SignalError(f"{what} answers JSON that is nested too deeply") from None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise SignalError(f"{what} does not answer JSON: check url") from None


class HttpClient:
    """The connections to one server with one set of credentials."""

    def __init__(
        self,
        url: ServerUrl,
        credentials: Credentials,
        context: ssl.SSLContext | None,
        tls: Tls | None,
        *,
        loopback: bool = True,
    ) -> None:
        self.name = f"{url.scheme}://{host_and_port(*url.hosts[0])}"
        self._credentials, self._context, self._loopback = credentials, context, loopback
        self._server_name = tls.server_name if tls else None
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "cotenant",
        }
        if credentials.token is not None:
            self._headers["Authorization"] = f"Bearer {credentials.token}"
        elif credentials.username is not None:
            pair = f"{credentials.username}:{credentials.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._refused = ""

    def _guarded_socket(self, address: AddrInfoType) -> socket.socket:
        """Opens a connection's socket: the last moment at which the address is known and nothing was sent."""
        family, kind, protocol, _, peer = address
        if why := refusal(ip_address(str(peer[0])), loopback=self._loopback):
            self._refused = f"{self.name} is {peer[0]}, {why}: signals are not read from there"
            raise PermissionError(self._refused)
        self._refused = ""
        return socket.socket(family, kind, protocol)

    async def get(
        self,
        target: str,
        *,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> Answer:
        """Fetches a target (path and query, encoded), with POST if there is a form; raises SignalError."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, socket_factory=self._guarded_socket)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        try:
            async with (
                turn(self._turns, TIMEOUT),
                asyncio.timeout(TIMEOUT),
                self._session.request(
                    "POST" if form is not None else "GET",
                    URL(f"{self.name}{target}", encoded=True).update_query(parameters or {}),
                    headers={**(headers or {}), **self._headers},
                    data=form,
                    allow_redirects=False,
                    ssl=self._context if self._context is not None else True,
                    server_hostname=self._server_name,
                ) as response,
            ):
                return await self._answer(response)
        except TimeoutError:
            raise SignalError(f"{self.name} did not answer within {TIMEOUT:g} s") from None
        except aiohttp.ClientError as error:
            raise self._explained(error) from None
        except (UnicodeError, ValueError):
            raise SignalError(
                f"{self.name} cannot be asked: a credential has a character that HTTP cannot carry"
            ) from None

    async def _answer(self, response: aiohttp.ClientResponse) -> Answer:
        if response.status in {401, 403}:
            given = (
                "the credentials are refused"
                if "Authorization" in self._headers
                else "it asks for credentials"
            )
            raise CredentialsRefused(
                f"{self.name} answers {response.status}: {given}: check username, passwordFrom or tokenFrom"
            )
        if 300 <= response.status < 400:
            raise SignalError(
                f"{self.name} redirects ({response.status}), which is not followed: write the final address"
            )
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise SignalError(f"{self.name} answers with compression that was not asked for")
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > LARGEST:
                raise SignalError(
                    f"{self.name} answers more than {LARGEST >> 20} MiB: ask for less, by url or query"
                )
        return Answer(response.status, bytes(body))

    def _explained(self, error: aiohttp.ClientError) -> SignalError:
        if isinstance(error, aiohttp.ClientConnectorError) and self._refused:
            return SignalError(self._refused)
        if failure := tls_failure(error):
            return CredentialsRefused(f"TLS with {self.name} fails: {failure}")
        if isinstance(error, aiohttp.InvalidURL):
            return SignalError(f"{self.name} is not valid as a URL: check the host")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return SignalError(f"{self.name} cannot be resolved: check the host in url")
        if isinstance(error, aiohttp.ClientConnectorError):
            return SignalError(f"{self.name} cannot be reached: {system_error(error) or 'no connection'}")
        return SignalError(
            f"{self.name} ended the connection or does not speak HTTP ({type(error).__name__})"
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def http_access(
    servers: Servers,
    secrets: Secrets,
    url: ServerUrl,
    spec: HttpAccess | RabbitMQ,
    token_from: FromSecret | None = None,
) -> Access[HttpClient]:
    """Returns the way to the client of this server, with the credentials that the specification names."""

    async def read() -> Credentials:
        references = {"password": spec.password_from, "token": token_from}
        return await read_credentials(
            secrets, references, spec.tls, spec.username or url.username, url.password
        )

    async def make(credentials: Credentials) -> HttpClient:
        context = await tls_context(spec.tls, credentials) if url.scheme in SECURE else None
        return HttpClient(url, credentials, context, spec.tls, loopback=servers.loopback)

    return Access(servers, ("http", url.scheme, url.hosts, spec.tls), read, make)
