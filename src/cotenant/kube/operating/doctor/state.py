"""What servers and agents tell of themselves at `/state`, as far as it is compared.

An agent is trusted with its own node only, so what it tells is checked as it is read: nothing that one of
them says can keep the doctor from looking at the others.
"""

from __future__ import annotations

import msgspec


class Slot(msgspec.Struct, frozen=True):
    """A container's slot on a node."""

    device: str = ""
    uid: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    mode: str = ""
    limits: dict[str, int] = {}
    used: dict[str, int] = {}
    held: bool = False
    """Whether a process lives in it."""

    @property
    def holder(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


class OfAgent(msgspec.Struct, frozen=True):
    waits: tuple[str, ...] = ()
    """What it is not ready for."""
    slots: tuple[Slot, ...] = ()
    kubelet: dict[str, tuple[str, ...]] | None = None
    """Who holds which device, by the kubelet's own record; None: it does not answer."""


class Charge(msgspec.Struct, frozen=True):
    """What a pod holds on the cards of its node."""

    node: str = ""
    gpus: dict[str, int] = {}


class OfServer(msgspec.Struct, frozen=True):
    leads: bool = False
    charged: dict[str, Charge] = {}
    """By the UIDs of pods."""
