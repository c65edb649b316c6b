"""Reaches Prometheus by its URL: with a bearer token or a password, verified TLS, without redirects.

The standard library's client in a thread: a command asks one question after the other, and needs no further
package for it.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import os
import socket
import ssl
import zlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlencode, urlsplit

from cotenant.core.errors import BadInput
from cotenant.observe.prometheus import Answer, PrometheusFailed, TooMuch, Unavailable

FIELD = "prometheus"
TIMEOUT = 60.0
"""Seconds for one answer; Prometheus gives up after 120 unless it is told otherwise."""
LARGEST = 128 << 20
"""Bytes of one answer, unpacked."""
LONGEST_TOKEN = 1 << 16
LONGEST_GET = 2000
"""Characters of a target; a longer one is sent as a form."""


class HttpTransport:
    """Asks the server at a URL."""

    def __init__(self, url: str, token_file: Path | None = None, ca_file: Path | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadInput(f"{FIELD}: {_plain(url)} is not a URL ({error}): {_EXAMPLE}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or " " in url:
            raise BadInput(f"{FIELD}: {_plain(url)} is not a URL of http or https: {_EXAMPLE}")
        if parts.query or parts.fragment:
            raise BadInput(f"{FIELD}: leave out what is after `?` or `#`: {_EXAMPLE}")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._base = parts.path.rstrip("/")
        self.name = f"{parts.scheme}://{parts.hostname}{f':{port}' if port else ''}{self._base}"
        self._token_file = token_file
        self._basic = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._basic = base64.b64encode(pair).decode()
        if (
            token_file is not None
            and not self._secure
            and self._host not in ("localhost", "127.0.0.1", "::1")
        ):
            raise BadInput("prometheus-token-file: a token is not sent over plain HTTP: use an https URL")
        self._context = _context(ca_file) if self._secure else None

    async def get(self, path: str, query: Mapping[str, str]) -> Answer:
        return await asyncio.to_thread(self._get, path, query)

    def _get(self, path: str, query: Mapping[str, str]) -> Answer:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "cotenant"}
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {_token(self._token_file)}"
        elif self._basic:
            headers["Authorization"] = f"Basic {self._basic}"
        form = urlencode(query)
        connection = self._connection()
        try:
            if len(form) <= LONGEST_GET:
                connection.request("GET", f"{self._base}{path}?{form}", headers=headers)
            else:
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                connection.request("POST", f"{self._base}{path}", form, headers)
            with connection.getresponse() as response:
                return self._answer(response)
        except ssl.SSLCertVerificationError as error:
            raise PrometheusFailed(
                f"TLS with {self.name} fails: {error.verify_message}: name its authority with "
                "--prometheus-ca-file"
            ) from None
        except socket.gaierror:
            raise PrometheusFailed(f"{self.name} cannot be resolved: check the host") from None
        except TimeoutError:
            raise Unavailable(f"{self.name} did not answer within {TIMEOUT:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            why = (
                os.strerror(error.errno)
                if isinstance(error, OSError) and error.errno
                else type(error).__name__
            )
            raise Unavailable(f"{self.name} cannot be reached: {why}") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._context is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)

    def _answer(self, response: http.client.HTTPResponse) -> Answer:
        status = response.status
        if status in {401, 403}:
            raise PrometheusFailed(
                f"{self.name} answers {status}: give a token with --prometheus-token-file, or a user and a "
                "password in the URL, who may read"
            )
        if 300 <= status < 400:
            raise PrometheusFailed(
                f"{self.name} redirects ({status}), which is not followed: write the final URL"
            )
        zipped = response.headers.get("Content-Encoding", "identity").lower()
        if zipped not in ("identity", "gzip"):
            raise PrometheusFailed(f"{self.name} answers with compression that was not asked for")
        unzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if zipped == "gzip" else None
        body = bytearray()
        while piece := response.read(1 << 18):
            try:
                body += unzip.decompress(piece, LARGEST + 1 - len(body)) if unzip is not None else piece
            except zlib.error:
                raise Unavailable(f"{self.name} answers gzip that is damaged") from None
            if len(body) > LARGEST:
                raise TooMuch(
                    f"{self.name} answers more than {LARGEST >> 20} MiB: ask for less, with --namespace or "
                    "--since"
                )
        return Answer(status, bytes(body))


_EXAMPLE = "write it like http://prometheus.monitoring:9090"


def _plain(url: str) -> str:
    """Quotes a URL without what may be a password in it."""
    scheme, sign, rest = url.partition("://")
    return ascii((f"{scheme}{sign}{rest.rpartition('@')[2]}" if sign else rest or scheme)[:100])


def _context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror or "not a certificate in PEM"
        raise BadInput(f"prometheus-ca-file: {ca_file}: {why}") from None


def _token(path: Path) -> str:
    """Reads the token at each request: those of service accounts are replaced every hour."""
    try:
        with path.open(encoding="ascii") as file:
            text = file.read(LONGEST_TOKEN).strip()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a token"
        raise BadInput(f"prometheus-token-file: {path}: {why}") from None
    if not text or any(sign.isspace() for sign in text):
        raise BadInput(f"prometheus-token-file: {path} has not one word in it: write the token alone")
    return text
