"""Runs exec credential plugins: programs named in a kubeconfig that print a short-lived credential.

The API is client.authentication.k8s.io, v1 and v1beta1. The plugin's output is never in a message. Its
standard error goes to ours, since it may ask a person to log in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from cotenant.kube.api.auth.credentials import Credential, clean_token
from cotenant.kube.api.errors import NoCredential

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
NEVER, IF_AVAILABLE, ALWAYS = MODES = ("Never", "IfAvailable", "Always")
EARLY = 10.0
"""Seconds before its expiry at which a credential is replaced: it must not expire during a request."""
LONGEST = 60.0
"""Seconds that a plugin may take without a terminal."""


@dataclass(frozen=True)
class ExecPlugin:
    """The plugin as the kubeconfig describes it."""

    where: str
    """`<file>: users[name].user.exec`, for messages."""
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    version: str = VERSIONS[0]
    interactive: str = IF_AVAILABLE
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None
    """Passed to the plugin if the kubeconfig sets provideClusterInfo."""


class _PluginStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Printed(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _PluginStatus | None = None


@dataclass
class ExecCredentials:
    """Runs the plugin when there is no credential, when it expires, and when the server rejects it. Requests
    that wait for a credential share one run, which goes on for the others if one of them gives up.
    """

    plugin: ExecPlugin
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    terminal: Callable[[], bool] = field(default=lambda: sys.stdin is not None and sys.stdin.isatty())
    now: Callable[[], float] = time.time
    longest: float = LONGEST
    _cached: Credential | None = field(default=None, init=False, repr=False)
    _ends: float | None = field(default=None, init=False)
    _running: asyncio.Task[Credential] | None = field(default=None, init=False, repr=False)

    async def current(self) -> Credential:
        if self._cached is not None and (self._ends is None or self.now() < self._ends - EARLY):
            return self._cached
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._renew())
            self._running.add_done_callback(self._ended)
        return await asyncio.shield(self._running)

    async def _renew(self) -> Credential:
        self._cached, self._ends = credential(self.plugin, await self._run())
        return self._cached

    def _ended(self, run: asyncio.Task[Credential]) -> None:
        self._running = None
        if not run.cancelled():
            run.exception()  # those who still wait get it

    def rejected(self, credential: Credential) -> None:
        if credential == self._cached:
            self._cached = None

    async def _run(self) -> bytes:
        plugin = self.plugin
        person = plugin.interactive != NEVER and self.terminal()
        if plugin.interactive == ALWAYS and not person:
            raise NoCredential(f"{plugin.where}: {plugin.command} needs a terminal, and there is none")
        environ = {**self.environ, **plugin.env, "KUBERNETES_EXEC_INFO": _asked(plugin, interactive=person)}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command, *plugin.args, env=environ, stdin=None if person else DEVNULL, stdout=PIPE
            )
        except OSError as error:
            hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
            raise NoCredential(
                f"{plugin.where}.command: {plugin.command} cannot be run: {error.strerror}{hint}"
            ) from None
        try:
            async with asyncio.timeout(None if person else self.longest):
                printed, _ = await process.communicate()
        except TimeoutError:
            raise NoCredential(
                f"{plugin.where}: {plugin.command} has not finished after {self.longest:.0f} s"
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            raise NoCredential(f"{plugin.where}: {plugin.command} exited with code {process.returncode}")
        return printed


def _asked(plugin: ExecPlugin, *, interactive: bool) -> str:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    asked = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(asked).decode()


def credential(plugin: ExecPlugin, printed: bytes) -> tuple[Credential, float | None]:
    """Parses the credential and its expiry, in seconds of the Unix epoch; None if it does not expire."""
    problem = ""
    try:
        read = msgspec.json.decode(printed, type=_Printed)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        where = f" ({error})" if isinstance(error, msgspec.ValidationError) else ""
        problem = f"printed something that is not an ExecCredential{where}"
    # Raised here, not above: the decoder's error holds the output, and a logger may show its fields.
    if problem:
        raise NoCredential(f"{plugin.where}: {plugin.command} {problem}")
    status = read.status
    if read.kind != "ExecCredential" or read.api_version != plugin.version:
        problem = f"was asked for an ExecCredential of {plugin.version} and printed another kind or version"
    elif status is None:
        problem = "printed no status"
    elif bool(status.client_certificate_data) != bool(status.client_key_data):
        problem = "printed a certificate without its key, or a key without its certificate"
    elif not status.token and not status.client_certificate_data:
        problem = "printed neither a token nor a certificate"
    if problem or status is None:
        raise NoCredential(f"{plugin.where}: {plugin.command} {problem}")
    made = Credential(
        token=clean_token(status.token.encode(), f"{plugin.where}: status.token") if status.token else "",
        certificate=(status.client_certificate_data or "").encode(),
        key=(status.client_key_data or "").encode(),
    )
    return made, None if status.expiration_timestamp is None else status.expiration_timestamp.timestamp()
