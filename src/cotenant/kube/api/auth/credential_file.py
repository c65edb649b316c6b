"""Reads certificates, keys and tokens from files that are rotated.

Files are read again every few seconds: a service account's token lives for an hour, a kubelet's certificate
for months, and a process that reads them only at its start would lose access.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.kube.api.errors import NoCredential

READ_AGAIN = 10.0
"""Seconds after which a file is read again."""


@dataclass
class CredentialFile:
    """Inline bytes, or the content of a file. `what` names it in errors: `kubeconfig: users[0].token`."""

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
        if data.strip():  # in the middle of a rotation the last content is kept
            self.data = data
        elif not self.data:
            raise NoCredential(f"{self.what}: {self.path} is empty")
        self._read_at = now
        return self.data

    def forget(self) -> None:
        """Makes the next `read` read the file, however recent the last one was."""
        self._read_at = -READ_AGAIN
