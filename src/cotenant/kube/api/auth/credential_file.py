"""Certificates, keys and tokens, wherever they are kept.

Files are read again and again: tokens of service accounts live for an hour, kubelet certificates for
months, and a process that read them once at its start would be locked out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.kube.api.errors import NoCredential

READ_AGAIN = 10.0
"""Seconds after which a file is looked at again."""


@dataclass
class CredentialFile:
    """Bytes given in place, or a file's; `what` is what an error calls them: `kubeconfig: users[0].token`."""

    what: str
    data: bytes = field(default=b"", repr=False)
    path: Path | None = None
    clock: Callable[[], float] = time.monotonic
    _read_at: float = field(default=0.0, init=False, repr=False)

    def read(self) -> bytes:
        if self.path is None:
            return self.data
        now = self.clock()
        if self.data and now - self._read_at < READ_AGAIN:
            return self.data
        try:
            data = self.path.read_bytes()
        except OSError as error:
            if not self.data:
                raise NoCredential(f"{self.what}: {self.path} cannot be read: {error.strerror}") from None
            data = b""
        if data.strip():  # in the middle of a rotation the last content is the best there is
            self.data = data
        elif not self.data:
            raise NoCredential(f"{self.what}: {self.path} is empty")
        self._read_at = now
        return self.data

    def forget(self) -> None:
        """The next read looks at the file even if it was read a moment ago."""
        self._read_at = -READ_AGAIN
