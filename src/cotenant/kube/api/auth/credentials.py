"""Who we are to the API server."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

from cotenant.kube.api.auth.credential_file import CredentialFile
from cotenant.kube.api.errors import NoCredential

_TOKEN = re.compile(rb"[\x21-\x7e]+")


@dataclass(frozen=True)
class Credential:
    """What is shown to the server now; nothing of it is ever printed."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


class Credentials(Protocol):
    """Where the credential comes from."""

    async def current(self) -> Credential: ...

    def rejected(self, credential: Credential) -> None:
        """The server did not accept it (401): do not hand it out again if there may be another."""


@dataclass
class StoredCredentials:
    """A token or a certificate with its key, in place or in files; all absent means anonymous."""

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
        for material in (self.token, self.certificate, self.key):
            if material is not None:
                material.forget()


def clean_token(data: bytes, field: str) -> str:
    """A token that can stand in a header; its content is in no message."""
    token = data.strip()
    if not _TOKEN.fullmatch(token):
        raise NoCredential(
            f"{field}: not a bearer token: it is empty or has spaces, line breaks or non-ASCII"
        )
    return token.decode("ascii")
