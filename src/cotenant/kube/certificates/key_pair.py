"""Holds a certificate with its private key. Who only serves one needs nothing else: `cryptography`, which
issues and reads them, takes 10 MiB of memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its private key, both in PEM. The key is never shown."""

    certificate: bytes
    key: bytes = field(repr=False)
