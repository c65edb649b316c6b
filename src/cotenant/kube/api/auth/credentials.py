"""Credentials for the API server: a bearer token, or a client certificate with its key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

from cotenant.kube.api.auth.credential_file import CredentialFile
from cotenant.kube.api.errors import NoCredential

_TOKEN = re.compile(rb"[\x21-\x7e]+")


@dataclass(frozen=True)
class Credential:
    """The credential to use now. Nothing of it is ever printed."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


class Credentials(Protocol):
    """A source of credentials, which may change."""

    async def current(self) -> Credential: ...

    def rejected(self, credential: Credential) -> None:
        """Reports that the server rejected it (401): `current` must return another, if there is one."""


@dataclass
class StoredCredentials:
    """A token, or a certificate with its key, inline or in files. Without any, requests are anonymous."""

    token: CredentialFile | None = None
    certificate: CredentialFile | None = None
    key: CredentialFile | None = None

    async def current(self) -> Credential:
        return Credential(
            token="" if self.token is None else clean_token(self.token.read(), self.token.what),
            certificate=b"" if self.certificate is None else self.certificate.read(),
            key=b"" if self.key is None else self.key.read(),
        )

    def rejected(self, credential: Credential) -> None:  # noqa: ARG002
        for file in (self.token, self.certificate, self.key):
            if file is not None:
                file.forget()


def clean_token(data: bytes, field: str) -> str:
    """Checks that a token can be sent in a header. Its content is never in a message."""
    token = data.strip()
    if not _TOKEN.fullmatch(token):
        raise NoCredential(
            f"{field}: not a bearer token: it is empty or has spaces, line breaks or non-ASCII"
        )
    return token.decode("ascii")
