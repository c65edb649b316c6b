"""An API server as far as keepers of certificates use it, in memory, and keepers on it."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from kube.handshakes import client as tls_client
from kube.handshakes import shake

from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.configuration import NAME, webhook_configuration
from cotenant.kube.api.errors import AlreadyExists, Conflict, KubeError, NotFound
from cotenant.kube.api.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from cotenant.kube.certificates.keeper import CertificateKeeper, KeeperTimes
from cotenant.kube.settings import Settings

SETTINGS = Settings(namespace="gpus")
NAME_OF_SERVICE = "cotenant-webhook.gpus.svc"
START = datetime.now(UTC).replace(microsecond=0)


@dataclass
class Shelf:
    """The part of an API server that keepers use, in memory; others get their turn within every call."""

    random: Random = field(default_factory=lambda: Random(1))
    objects: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    fails: dict[str, KubeError] = field(default_factory=dict)
    """By `verb plural`, until it is taken out."""
    writes: list[str] = field(default_factory=list)
    versions: int = 0

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        await self._travel("get", resource)
        return self._read(resource, name)

    async def create(self, resource: Resource[Any], body: dict[str, Any], namespace: str) -> Any:
        await self._travel("create", resource)
        name = body["metadata"]["name"]
        if name in self.objects:
            raise AlreadyExists("already there")
        self.put(resource, copy.deepcopy(body))
        return self._read(resource, name)

    async def merge_patch(self, resource, name, changes, namespace, *, guard) -> Any:
        await self._travel("patch", resource)
        found = self._guarded(name, guard)
        for key, value in changes["data"].items():
            if value is None:
                found["data"].pop(key, None)
            else:
                found["data"][key] = value
        self.put(resource, found)
        return self._read(resource, name)

    async def json_patch(self, resource, name, operations, *, guard) -> Any:
        await self._travel("patch", resource)
        found = self._guarded(name, guard)
        for each in operations:
            assert each["op"] == "add"
            _, webhooks, index, config, leaf = each["path"].split("/")
            assert (webhooks, config, leaf) == ("webhooks", "clientConfig", "caBundle")
            found["webhooks"][int(index)]["clientConfig"]["caBundle"] = each["value"]
        self.put(resource, found)
        return self._read(resource, name)

    def put(self, resource: Resource[Any], body: dict[str, Any]) -> None:
        self.versions += 1
        meta = body["metadata"]
        meta.setdefault("uid", f"uid-{self.versions}")
        meta["resourceVersion"] = str(self.versions)
        self.objects[meta["name"]] = body
        self.writes.append(resource.plural)

    def _guarded(self, name: str, guard: Any) -> dict[str, Any]:
        found = self.objects.get(name)
        if found is None:
            raise NotFound("not found")
        if guard.fields() != {key: found["metadata"][key] for key in ("uid", "resourceVersion")}:
            raise Conflict("changed")
        return copy.deepcopy(found)

    def _read(self, resource: Resource[Any], name: str) -> Any:
        if name not in self.objects:
            raise NotFound(f"{name}: not found")
        return resource.decode(json.dumps(self.objects[name]).encode())

    async def _travel(self, verb: str, resource: Resource[Any]) -> None:
        for _ in range(self.random.randint(0, 3)):
            await asyncio.sleep(0)
        if problem := self.fails.get(f"{verb} {resource.plural}"):
            raise problem

    def install(self, settings: Settings = SETTINGS) -> None:
        self.put(MUTATING_WEBHOOK_CONFIGURATIONS, webhook_configuration(settings, Dialects()))

    @property
    def bundle(self) -> bytes:
        config = self.objects[NAME]["webhooks"][0]["clientConfig"]
        return base64.b64decode(config.get("caBundle", ""))


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
