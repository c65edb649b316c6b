"""Keeps the certificates: in a Secret that all servers share, in the webhook's configuration, in use.

Every server does the same. Whoever sees first that something is due writes it, guarded by what was read; the
others read it from the Secret. The order is always: into the Secret, into the configuration, into use. So a
server that is killed in between leaves nothing that the next one would not finish.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from cotenant.kube.admission import configuration
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.errors import AlreadyExists, Conflict, KubeError, NotFound, Unreachable
from cotenant.kube.api.objects import Secret
from cotenant.kube.api.patches import Guard, pointer
from cotenant.kube.api.resources import MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS
from cotenant.kube.api.watcher import Watcher
from cotenant.kube.certificates import certificates, renewal
from cotenant.kube.certificates.certificates import Pair
from cotenant.kube.certificates.live_context import LiveTls
from cotenant.kube.certificates.renewal import CertificateSet, Wanted
from cotenant.kube.settings import Settings

log = logging.getLogger(__name__)

SECRET = "cotenant-certificates"  # noqa: S105 - its name
ATTEMPTS = 8
"""At one write, against others who write the same."""


@dataclass(frozen=True)
class KeeperTimes:
    """In seconds."""

    look: float = 60.0
    """Between two looks when nothing is heard: what is due is due by the clock, and clocks jump."""
    pace: float = 1.0
    """After a write, before the next: servers whose clocks differ by hours would undo each other's."""
    settle: float = 10.0
    """How long API servers may take to hear of a change of the configuration."""
    first_pause: float = 0.1
    longest_pause: float = 5.0
    """Between tries while the API server does not answer; jittered."""


def wanted(settings: Settings, times: KeeperTimes) -> Wanted:
    services = (settings.webhook.service, settings.extender.service)
    endings = ("", f".{settings.namespace}", f".{settings.namespace}.svc")
    names = [f"{service}{ending}" for service in services for ending in endings]
    names += [f"{service}.{settings.namespace}.svc.cluster.local" for service in services]
    return Wanted(
        names=tuple(dict.fromkeys((*names, *(_normal(name) for name in settings.webhook.extra_names)))),
        lifetime=timedelta(seconds=settings.webhook.certificate_lifetime),
        authority_lifetime=timedelta(seconds=settings.webhook.authority_lifetime),
        settle=timedelta(seconds=times.settle),
    )


@dataclass
class CertificateKeeper:
    """`run()` keeps them until it is cancelled; what it gave to listeners goes on working after that."""

    client: Client
    settings: Settings
    times: KeeperTimes = field(default_factory=KeeperTimes)
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)
    clock: Callable[[], float] = time.monotonic
    random: Random = field(default_factory=Random, repr=False)

    ca_bundle: bytes = field(default=b"", init=False)
    """PEM: whom clients of the server are to trust."""
    trouble: KubeError | None = field(default=None, init=False)
    """Why the certificates are not being kept just now."""
    _serving: Pair | None = field(default=None, init=False)
    _trusted: bytes = field(default=b"", init=False, repr=False)
    _heard: dict[bytes, float] = field(default_factory=dict, init=False, repr=False)
    """The authorities that stand in the configuration, and since when; none if there is no configuration."""
    _wrote: bool = field(default=False, init=False)
    _live: LiveTls = field(default_factory=LiveTls, init=False, repr=False)
    _bell: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)
    _ready: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)

    def __post_init__(self) -> None:
        self._wanted = wanted(self.settings, self.times)

    @property
    def ready(self) -> bool:
        """Whether there is a certificate in use, and a good one."""
        return self._serving is not None and self._holds(self._serving)

    async def wait_until_ready(self, within: float | None = None) -> None:
        """The trouble, if that takes longer than `within` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._ready.wait()
        except TimeoutError:
            problem = self.trouble or Unreachable(f"certificates: none in {within} s")
            raise problem from None

    def server_context(self, client_certificates: bool) -> ssl.SSLContext:
        """For a listener, at any time; always the same object, which serves the newest certificate. With
        `client_certificates`, clients must show one of ours.
        """
        return self._live.context(client_certificates)

    async def run(self) -> None:
        secrets = Watcher(
            self.client, SECRETS, Selection(self.settings.namespace, fields=f"metadata.name={SECRET}")
        )
        configurations = Watcher(
            self.client,
            MUTATING_WEBHOOK_CONFIGURATIONS,
            Selection(fields=f"metadata.name={configuration.NAME}"),
        )
        secrets.store.subscribe(lambda _: self._bell.set())
        configurations.store.subscribe(lambda _: self._bell.set())
        async with asyncio.TaskGroup() as group:
            group.create_task(secrets.run())
            group.create_task(configurations.run())
            group.create_task(self._keep())

    async def _keep(self) -> None:
        backoff = Backoff(self.times.first_pause, self.times.longest_pause, self.random)
        while True:
            self._bell.clear()
            self._wrote = False
            await self.step()
            if self._wrote:
                await asyncio.sleep(self.times.pace)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause(backoff)):
                    await self._bell.wait()

    def _pause(self, backoff: Backoff) -> float:
        if self.trouble is not None:
            return backoff.next(self.trouble.retry_after)
        backoff.reset()
        settled = len(self._known()) == len(self._heard)
        return self.times.look if settled else min(self.times.look, self.times.settle)

    def _known(self) -> list[bytes]:
        """The authorities that every API server has heard of by now."""
        now = self.clock()
        return [each for each, since in self._heard.items() if now - since >= self.times.settle]

    async def step(self) -> None:
        """One look at everything, and what follows from it."""
        try:
            kept = await self._kept()
        except KubeError as error:
            return self._note(error)
        self.ca_bundle = kept.bundle
        problem: KubeError | None = None
        try:
            await self._publish(kept.bundle)
        except KubeError as error:
            problem = error  # what there is can be served all the same
        self._use(kept)
        return self._note(problem)

    async def _kept(self) -> CertificateSet:
        """What the Secret holds, after what is due in it has been done."""
        for _ in range(ATTEMPTS):
            try:
                secret = await self.client.get(SECRETS, SECRET, self.settings.namespace)
            except NotFound:
                secret = None
            kept = renewal.from_data({} if secret is None else secret.data)
            better = renewal.renewed(kept, self._wanted, self.wall())
            try:
                await self._write(secret, better)
            except (AlreadyExists, Conflict):
                continue
            except NotFound:
                if secret is None:
                    raise  # there is not even the namespace
                continue
            return better
        raise Conflict(f"secret {self.settings.namespace}/{SECRET}: others change it all the time")

    async def _write(self, secret: Secret | None, better: CertificateSet) -> None:
        """Keys of the Secret that are not ours are left as they are."""
        data = renewal.to_data(better)
        if secret is None:
            body: dict[str, Any] = {
                "metadata": {"name": SECRET, "labels": {"app.kubernetes.io/name": "cotenant"}},
                "type": "Opaque",
                "data": data,
            }
            await self.client.create(SECRETS, body, self.settings.namespace)
        else:
            changes = {key: data.get(key) for key in renewal.KEYS if data.get(key) != secret.data.get(key)}
            if not changes:
                return
            await self.client.merge_patch(
                SECRETS, SECRET, {"data": changes}, self.settings.namespace, guard=Guard.of(secret)
            )
        self._wrote = True
        log.info("certificates: %s", "made" if secret is None else f"changed: {', '.join(sorted(changes))}")

    async def _publish(self, bundle: bytes) -> None:
        try:
            found = await self.client.get(MUTATING_WEBHOOK_CONFIGURATIONS, configuration.NAME)
        except NotFound:
            self._heard = {}
            raise
        text = base64.b64encode(bundle).decode()
        steps = [
            {"op": "add", "path": pointer("webhooks", str(index), "clientConfig", "caBundle"), "value": text}
            for index, webhook in enumerate(found.webhooks)
            if webhook.client_config.ca_bundle != text
        ]
        if steps:
            await self.client.json_patch(
                MUTATING_WEBHOOK_CONFIGURATIONS, configuration.NAME, steps, guard=Guard.of(found)
            )
            self._wrote = True
            log.info("certificates: caBundle of the webhook's configuration is set")
        now = self.clock()
        told = [certificates.pem(each) for each in certificates.read_all(bundle)]
        self._heard = {each: self._heard.get(each, now) for each in told}

    def _use(self, kept: CertificateSet) -> None:
        serving = kept.serving if self._may_serve(kept.serving) else self._serving
        if serving is None or (serving, kept.bundle) == (self._serving, self._trusted):
            return
        self._live.serve(serving, kept.bundle)
        if serving != self._serving:
            certificate = certificates.read(serving.certificate)
            assert certificate is not None  # noqa: S101 - it is in use
            log.info("certificates: serving one that ends %s", certificates.term(certificate).ends)
        self._serving, self._trusted = serving, kept.bundle
        self._ready.set()

    def _may_serve(self, fresh: Pair) -> bool:
        """Not before API servers have heard of the authority that signed it, while they still trust what is
        being served.
        """
        if self._serving is None or not self._holds(self._serving):
            return True
        if not renewal.is_signed(self._serving.certificate, b"".join(self._heard)):
            return True
        return renewal.is_signed(fresh.certificate, b"".join(self._known()))

    def _holds(self, pair: Pair) -> bool:
        certificate = certificates.read(pair.certificate)
        return certificate is not None and certificates.term(certificate).holds(self.wall())

    def _note(self, error: KubeError | None) -> None:
        if error is not None and type(error) is not type(self.trouble):
            log.warning("certificates: %s", error)
        self.trouble = error


def _normal(name: str) -> str:
    """Addresses as certificates spell them."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name
