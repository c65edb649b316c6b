"""Reads the passwords that a specification refers to, from files: `secrets/NAME/KEY` beside the file.

It is the layout in which Kubernetes mounts a Secret, so that the same specification works in both.
"""

from __future__ import annotations

from pathlib import Path

from cotenant.core.errors import CotenantError

LARGEST = 1 << 20


class SecretUnreadable(CotenantError):
    """The file of a secret cannot be read."""


class SecretFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "secrets"

    async def __call__(self, name: str, key: str) -> str:
        path = self._folder / name / key
        try:
            with path.open("rb") as file:
                return file.read(LARGEST + 1).decode()
        except UnicodeDecodeError:
            raise SecretUnreadable(f"{path} is no text in UTF-8") from None
        except OSError as error:
            raise SecretUnreadable(
                f"{path}: {error.strerror}: write the value into this file, mode 600"
            ) from None
