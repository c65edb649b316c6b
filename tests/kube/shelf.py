"""Keepers of certificates on an API server in memory."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from kube.fakeapi import FakeApi
from kube.handshakes import client as tls_client
from kube.handshakes import shake

from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.configuration import NAME, webhook_configuration
from cotenant.kube.api.resources import MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS
from cotenant.kube.certificates.keeper import SECRET, CertificateKeeper, KeeperTimes
from cotenant.kube.settings import Settings

SETTINGS = Settings(namespace="gpus")
NAME_OF_SERVICE = "cotenant-webhook.gpus.svc"
START = datetime.now(UTC).replace(microsecond=0)


class Shelf(FakeApi):
    """An API server in which others get their turn within every request, as often as chance wants."""

    def __init__(self, random: Random | None = None) -> None:
        chance = random or Random(1)
        super().__init__(turns=lambda: chance.randint(0, 3))

    def install(self, settings: Settings = SETTINGS) -> None:
        self.put(MUTATING_WEBHOOK_CONFIGURATIONS, webhook_configuration(settings, Dialects()))

    @property
    def configuration(self) -> dict[str, Any]:
        return self.raw(MUTATING_WEBHOOK_CONFIGURATIONS, NAME)

    @property
    def secret(self) -> dict[str, Any]:
        return self.raw(SECRETS, SECRET, SETTINGS.namespace)

    @property
    def renewals(self) -> int:
        """How often the Secret with all certificates was written."""
        return sum(write.split()[1:] == ["secrets", SECRET] for write in self.writes)

    @property
    def bundle(self) -> bytes:
        """The authorities that the API server is to trust."""
        return base64.b64decode(self.configuration["webhooks"][0]["clientConfig"].get("caBundle", ""))


@dataclass
class Clock:
    seconds: float = 0.0
    offset: timedelta = timedelta()

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.seconds) + self.offset

    def monotonic(self) -> float:
        return self.seconds


def keeper(shelf: Any, clock: Clock | None = None, settings: Settings = SETTINGS, **times: float) -> Any:
    clock = clock or Clock()
    return CertificateKeeper(
        shelf, settings, NAME, KeeperTimes(**times), wall=clock.wall, clock=clock.monotonic, random=Random(1)
    )


def served(it: CertificateKeeper, trusted: bytes | None = None) -> Any:
    """What a client is shown that trusts the keeper's bundle, or another."""
    context = it.server_context(client_certificates=False)
    return shake(context, tls_client(it.ca_bundle if trusted is None else trusted), NAME_OF_SERVICE)


def serving(it: CertificateKeeper) -> bytes:
    assert it._serving is not None
    return it._serving.certificate


def run(main: Any) -> Any:
    return asyncio.run(main)
