"""Metrics and health by HTTP: plain on a loopback address, else with a certificate made at the start.

Nothing that is served is secret, and nothing can be changed through it: the certificate only keeps figures
from being read on the way. Who scrapes cannot verify it.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cotenant.core.errors import CotenantError
from cotenant.kube.agent.metrics import CONTENT_TYPE

_LIFETIME = dt.timedelta(days=3650)
_CLOCKS_DIFFER = dt.timedelta(days=1)


@asynccontextmanager
async def serving(
    address: str,
    port: int,
    name: str,
    metrics: Callable[[], Awaitable[bytes]],
    not_ready: Callable[[], list[str]],
    state: Callable[[], Awaitable[bytes]] | None = None,
) -> AsyncIterator[str]:
    """Serves until the block ends; gives the URL. `not_ready` tells what the agent still waits for, `state`
    all that it knows, as JSON.
    """

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def show_health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def show_readiness(_: web.Request) -> web.Response:
        missing = not_ready()
        if missing:
            return web.Response(text="".join(f"{each}\n" for each in missing), status=503)
        return web.Response(text="ok\n")

    async def show_state(_: web.Request) -> web.Response:
        return web.Response(body=await state() if state else b"{}", content_type="application/json")

    app = web.Application()
    app.router.add_get("/state", show_state)
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/healthz", show_health)
    app.router.add_get("/readyz", show_readiness)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        tls = None if is_loopback(address) else self_signed(name)
        try:
            await web.TCPSite(runner, address or None, port, ssl_context=tls).start()
        except OSError as error:
            raise CotenantError(
                f"agent.address, agent.port: cannot listen on {address or 'all addresses'}, port {port}: "
                f"{error.strerror or error}"
            ) from None
        yield f"{'https' if tls else 'http'}://{address or name}:{port}"
    finally:
        await runner.cleanup()


def is_loopback(address: str) -> bool:
    return bool(address) and ip_address(address).is_loopback


def self_signed(name: str) -> ssl.SSLContext:
    """A key that never leaves this process, and a certificate for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cotenant-agent")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Through memory that has no name: OpenSSL wants files, and a private key must not get onto a disk.
    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as pair:
            pair.write(certificate.public_bytes(serialization.Encoding.PEM) + pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
