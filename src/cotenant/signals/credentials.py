"""Reads credentials from Secrets and makes TLS contexts of them. No credential reaches a log or an error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from urllib.parse import quote

from cotenant.core.errors import CotenantError
from cotenant.signals.signal import Secrets, SignalError
from cotenant.signals.specification import FromSecret, Tls

LARGEST = 1 << 20
"""Characters of one value, as much as a Secret can hold."""
SHOWN = 200
"""Characters of a server's own words that an error quotes."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a server asks for. Equal ones may share a connection; `repr` shows only that they are there."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    authorities: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)

    def hide(self, text: object) -> str:
        """Cuts a server's words to one short line in which none of the credentials is left."""
        said = str(text)[: 16 * SHOWN]
        for secret in (self.password, self.token, self.sentinel_password, self.key):
            for spelling in {secret, quote(secret, safe="")} if secret else ():
                said = said.replace(spelling, "***")
        said = _CONTROL.sub(" ", said).strip()
        return said if len(said) <= SHOWN else f"{said[:SHOWN]}..."


async def read_credentials(
    secrets: Secrets,
    references: Mapping[str, FromSecret | None],
    tls: Tls | None,
    username: str | None,
    password: str | None = None,
) -> Credentials:
    """Reads every credential that a specification refers to; `references` by the fields of Credentials."""
    wanted = dict(references)
    if tls is not None:
        wanted |= {"authorities": tls.ca_from, "certificate": tls.certificate_from, "key": tls.key_from}
    known = {each.name for each in fields(Credentials)}
    values: dict[str, str | None] = {"username": username, "password": password}
    for name, reference in wanted.items():
        if reference is not None and name in known:
            values[name] = await _value(secrets, reference)
    return Credentials(**values)


async def _value(secrets: Secrets, reference: FromSecret) -> str:
    wanted = f"key {reference.secret.key} of Secret {reference.secret.name}"
    try:
        value = await secrets(reference.secret.name, reference.secret.key)
    except CotenantError as error:
        raise SignalError(f"{wanted} cannot be read: {error}") from None
    if not isinstance(value, str) or len(value) > LARGEST:
        raise SignalError(f"{wanted} is not a text of at most {LARGEST} characters")
    # Files that editors wrote end with a line break, and no password is meant to.
    value = value.rstrip("\r\n")
    if not value:
        raise SignalError(f"{wanted} is empty")
    return value


async def tls_context(tls: Tls | None, credentials: Credentials) -> ssl.SSLContext:
    """Makes the TLS context of a connection. In a thread: reading the system's authorities takes 20 ms."""
    return await asyncio.to_thread(_tls_context, tls or Tls(), credentials)


def _tls_context(tls: Tls, credentials: Credentials) -> ssl.SSLContext:
    try:
        # Bundles have the names of authorities beside them, and not all of these are ASCII.
        authorities = credentials.authorities and credentials.authorities.encode("ascii", "replace").decode()
        context = ssl.create_default_context(cadata=authorities)
    except (ssl.SSLError, ValueError):
        raise SignalError("tls.caFrom: its value is not a certificate in PEM") from None
    if tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credentials.certificate is not None and credentials.key is not None:
        try:
            with _only_in_memory(f"{credentials.certificate}\n{credentials.key}\n") as path:
                context.load_cert_chain(path, password="")  # no prompt on a terminal for an encrypted key
        except (ssl.SSLError, ValueError):
            raise SignalError(
                "tls.certificateFrom and tls.keyFrom: they are not a certificate in PEM and its private key"
            ) from None
    return context


@contextlib.contextmanager
def _only_in_memory(text: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Writes where Python can read it: ssl takes a key from a file only; this one is on no disk."""
    descriptor = os.memfd_create("cotenant-client-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def tls_failure(error: BaseException) -> str | None:
    """Says why a TLS handshake failed and what to change; None if it was something else that failed."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(seen) < 16:
        each = waiting.pop()
        if each is None or any(each is one for one in seen):
            continue
        if isinstance(each, ssl.SSLCertVerificationError) and hasattr(each, "verify_message"):
            return f"{each.verify_message}: check tls.caFrom and tls.serverName"
        if isinstance(each, ssl.SSLError) and hasattr(each, "reason"):
            reason = str(each.reason or "the handshake failed").replace("_", " ").lower()
            return f"{reason}: check that the server speaks TLS on this port, and tls.certificateFrom"
        seen.append(each)
        inner = (getattr(each, name, None) for name in ("certificate_error", "os_error"))
        waiting += [
            each.__cause__,
            each.__context__,
            *(one for one in inner if isinstance(one, BaseException)),
        ]
    return None
