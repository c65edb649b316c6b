"""Renews certificates in a Secret, publishes the CA bundle and serves the newest certificate.

Every server does the same. The first one that sees a certificate due for renewal writes the Secret, guarded
by the version that it read; the others read the result. The order is always: Secret, CA bundle of the webhook
configuration, listener, CA bundle for scrapers, certificate of the agents. So the next server completes what
a killed one has left unfinished.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.errors import AlreadyExists, Conflict, KubeError, NotFound, Unreachable
from cotenant.kube.api.objects import Secret
from cotenant.kube.api.patches import Guard, pointer
from cotenant.kube.api.resources import MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS
from cotenant.kube.api.watcher import Watcher
from cotenant.kube.certificates import certificates, distribution, renewal
from cotenant.kube.certificates.key_pair import KeyPair
from cotenant.kube.certificates.live_context import LiveContext
from cotenant.kube.certificates.renewal import CertificatePolicy, CertificateSet
from cotenant.kube.logs import get_logger
from cotenant.kube.settings import Settings

log = get_logger(__name__)

SECRET = "cotenant-certificates"  # noqa: S105 - the name of the object
ATTEMPTS = 8
"""Tries of one write against other servers that write the same Secret."""


@dataclass(frozen=True)
class KeeperTimes:
    """In seconds."""

    look: float = 60.0
    """Between two checks when no watch reports a change: renewal is due by the clock, and clocks jump."""
    pace: float = 1.0
    """After a write, before the next one: servers whose clocks differ by hours would undo each other's."""
    settle: float = 10.0
    """How long API servers may take to see a change of the webhook configuration."""
    first_pause: float = 0.1
    longest_pause: float = 5.0
    """Between retries while the API server does not answer; jittered."""


def certificate_policy(settings: Settings, times: KeeperTimes) -> CertificatePolicy:
    """Derives names and lifetimes from the settings: Services by all their names in cluster DNS. Agents have
    no Service; they are named as if they had one.
    """
    services = [settings.webhook.service, settings.extender.service]
    if settings.keda.enabled:
        services.append(settings.keda.service)
    names = [name for service in services for name in _dns_names(service, settings.namespace)]
    return CertificatePolicy(
        names=tuple(dict.fromkeys((*names, *(_normal(name) for name in settings.webhook.extra_names)))),
        agent_names=_dns_names(distribution.AGENT_NAME, settings.namespace),
        lifetime=timedelta(seconds=settings.webhook.certificate_lifetime),
        authority_lifetime=timedelta(seconds=settings.webhook.authority_lifetime),
        settle=timedelta(seconds=times.settle),
    )


@dataclass
class CertificateKeeper:
    """`run()` renews until it is cancelled. Listeners keep the last certificate after that."""

    client: Client
    settings: Settings
    webhook_configuration: str
    """The name of the MutatingWebhookConfiguration that gets the CA bundle."""
    times: KeeperTimes = field(default_factory=KeeperTimes)
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)
    clock: Callable[[], float] = time.monotonic
    random: Random = field(default_factory=Random, repr=False)

    ca_bundle: bytes = field(default=b"", init=False)
    """PEM: the authorities that clients of the server must trust."""
    trouble: KubeError | None = field(default=None, init=False)
    """Why the certificates cannot be renewed or published now."""
    _serving: KeyPair | None = field(default=None, init=False)
    _trusted: bytes = field(default=b"", init=False, repr=False)
    _published: dict[bytes, float] = field(default_factory=dict, init=False, repr=False)
    """The authorities in the webhook configuration, and since when; empty if there is no configuration."""
    _wrote: bool = field(default=False, init=False)
    _live: LiveContext = field(default_factory=LiveContext, init=False, repr=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)
    _ready: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)

    def __post_init__(self) -> None:
        self._policy = certificate_policy(self.settings, self.times)

    @property
    def ready(self) -> bool:
        """Whether a valid certificate is being served."""
        return self._serving is not None and self._is_valid(self._serving)

    @property
    def serving(self) -> KeyPair:
        """The certificate that is being served now. Only after `wait_until_ready`."""
        assert self._serving is not None  # noqa: S101 - see above
        return self._serving

    async def wait_until_ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Raises `trouble` if there is no certificate after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
        except TimeoutError:
            problem = self.trouble or Unreachable(f"certificates: not ready after {timeout} s")
            raise problem from None

    def server_context(self, client_certificates: bool) -> ssl.SSLContext:
        """Returns the context for a listener: always the same object, which serves the newest certificate.
        With `client_certificates`, clients must present one that our authority has signed.
        """
        return self._live.context(client_certificates)

    async def run(self) -> None:
        secrets = Watcher(
            self.client, SECRETS, Selection(self.settings.namespace, fields=f"metadata.name={SECRET}")
        )
        configurations = Watcher(
            self.client,
            MUTATING_WEBHOOK_CONFIGURATIONS,
            Selection(fields=f"metadata.name={self.webhook_configuration}"),
        )
        secrets.store.subscribe(lambda _: self._changed.set())
        configurations.store.subscribe(lambda _: self._changed.set())
        async with asyncio.TaskGroup() as group:
            group.create_task(secrets.run())
            group.create_task(configurations.run())
            group.create_task(self._reconcile_forever())

    async def _reconcile_forever(self) -> None:
        backoff = Backoff(self.times.first_pause, self.times.longest_pause, self.random)
        while True:
            self._changed.clear()
            self._wrote = False
            await self.reconcile()
            if self._wrote:
                await asyncio.sleep(self.times.pace)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause(backoff)):
                    await self._changed.wait()

    def _pause(self, backoff: Backoff) -> float:
        if self.trouble is not None:
            return backoff.next(self.trouble.retry_after)
        backoff.reset()
        settled = len(self._propagated()) == len(self._published)
        return self.times.look if settled else min(self.times.look, self.times.settle)

    def _propagated(self) -> list[bytes]:
        """The published authorities that every API server has seen by now."""
        now = self.clock()
        return [each for each, since in self._published.items() if now - since >= self.times.settle]

    async def reconcile(self) -> None:
        """Renews what is due, publishes the CA bundle and serves the newest certificate, once."""
        try:
            kept = await self._kept()
        except KubeError as error:
            return self._note(error)
        self.ca_bundle = kept.bundle
        unpublished = await _failure(self._publish(kept.bundle))
        self._use(kept)  # also if its authority could not be published
        undistributed = await _failure(self._distribute(kept))
        return self._note(unpublished or undistributed)

    async def _kept(self) -> CertificateSet:
        """Reads the Secret, renews what is due and returns the result."""
        for _ in range(ATTEMPTS):
            try:
                secret = await self.client.get(SECRETS, SECRET, self.settings.namespace)
            except NotFound:
                secret = None
            kept = renewal.from_data({} if secret is None else secret.data)
            better = renewal.renewed(kept, self._policy, self.wall())
            try:
                await self._write(secret, better)
            except (AlreadyExists, Conflict):
                continue
            except NotFound:
                if secret is None:
                    raise  # the namespace is missing, too
                continue
            return better
        raise Conflict(f"secret {self.settings.namespace}/{SECRET}: other writers change it all the time")

    async def _write(self, secret: Secret | None, better: CertificateSet) -> None:
        """Writes what has changed. Leaves keys of the Secret that are not ours as they are."""
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
        if secret is None:
            log.info("certificates created")
        else:
            log.info("certificates changed", keys=", ".join(sorted(changes)))

    async def _publish(self, bundle: bytes) -> None:
        """Writes the CA bundle into the webhook configuration, if it is not there."""
        try:
            found = await self.client.get(MUTATING_WEBHOOK_CONFIGURATIONS, self.webhook_configuration)
        except NotFound:
            self._published = {}
            raise
        text = base64.b64encode(bundle).decode()
        steps = [
            {"op": "add", "path": pointer("webhooks", str(index), "clientConfig", "caBundle"), "value": text}
            for index, webhook in enumerate(found.webhooks)
            if webhook.client_config.ca_bundle != text
        ]
        if steps:
            await self.client.json_patch(
                MUTATING_WEBHOOK_CONFIGURATIONS, self.webhook_configuration, steps, guard=Guard.of(found)
            )
            self._wrote = True
            log.info("caBundle written into the webhook configuration")
        now = self.clock()
        authorities = [certificates.pem(each) for each in certificates.read_all(bundle)]
        self._published = {each: self._published.get(each, now) for each in authorities}

    async def _distribute(self, kept: CertificateSet) -> None:
        """Publishes for scrapers what verifies servers and agents, then what agents serve: in this order, so
        that a scraper trusts the authority of a certificate before it meets the certificate.
        """
        namespace = self.settings.namespace
        wrote = await distribution.publish_bundle(self.client, namespace, kept.bundle)
        if kept.agent != renewal.NOTHING:
            wrote |= await distribution.publish_agent_certificate(self.client, namespace, kept.agent)
        self._wrote |= wrote

    def _use(self, kept: CertificateSet) -> None:
        serving = kept.serving if self._may_serve(kept.serving) else self._serving
        if serving is None or (serving, kept.bundle) == (self._serving, self._trusted):
            return
        self._live.serve(serving, kept.bundle)
        if serving != self._serving:
            certificate = certificates.read(serving.certificate)
            assert certificate is not None  # noqa: S101 - it is being served
            log.info("serving certificate", not_after=certificates.validity(certificate).not_after)
        self._serving, self._trusted = serving, kept.bundle
        self._ready.set()

    def _may_serve(self, fresh: KeyPair) -> bool:
        """Whether to replace the certificate being served. While API servers still trust that one, its
        successor waits until they have seen the authority that signed it.
        """
        if self._serving is None or not self._is_valid(self._serving):
            return True
        if not renewal.is_signed(self._serving.certificate, b"".join(self._published)):
            return True
        return renewal.is_signed(fresh.certificate, b"".join(self._propagated()))

    def _is_valid(self, pair: KeyPair) -> bool:
        certificate = certificates.read(pair.certificate)
        return certificate is not None and certificates.validity(certificate).contains(self.wall())

    def _note(self, error: KubeError | None) -> None:
        if error is not None and type(error) is not type(self.trouble):
            log.warning("certificates cannot be kept current", error=error)
        self.trouble = error


async def _failure(step: Coroutine[Any, Any, None]) -> KubeError | None:
    """Awaits the step and returns its error, so that the steps after it are not left out."""
    try:
        await step
    except KubeError as error:
        return error
    return None


def _dns_names(service: str, namespace: str) -> tuple[str, ...]:
    endings = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
    return tuple(f"{service}{ending}" for ending in endings)


def _normal(name: str) -> str:
    """Spells IP addresses as certificates do."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name
