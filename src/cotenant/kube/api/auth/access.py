"""Describes how to reach one cluster and as which user; reads it from inside a pod."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from cotenant.kube.api.auth.credential_file import CredentialFile
from cotenant.kube.api.auth.credentials import Credentials, StoredCredentials
from cotenant.kube.api.auth.proxy import Proxy, proxy_from_environment
from cotenant.kube.api.errors import BadKubeconfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Access:
    """Address, credentials and TLS settings of one API server."""

    server: str
    """`https://host:port`, without a trailing slash."""
    credentials: Credentials = field(default_factory=StoredCredentials, repr=False)
    authority: CredentialFile | None = None
    """PEM certificates that verify the server; None for the system's."""
    verify: bool = True
    server_name: str = ""
    """The name the server's certificate must have, if it is not the host of `server`."""
    namespace: str = "default"
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Headers that name the user to impersonate."""
    proxy: Proxy | None = None


def checked_server(server: str, field: str) -> str:
    """Checks the server's URL and removes a trailing slash. One with a password would end up in messages."""
    try:
        parts = urlsplit(server)
        port = parts.port
    except ValueError:
        raise BadKubeconfig(f"{field}: not an address like https://host:6443") from None
    if parts.username is not None or parts.password is not None:
        raise BadKubeconfig(f"{field}: a user or password in the address is not supported: set users[].user")
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or port == 0
        or parts.query
        or parts.fragment
    ):
        raise BadKubeconfig(f"{field}: not an address like https://host:6443")
    return server.rstrip("/")


def in_cluster(environ: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Access | None:
    """Returns access as the pod's service account; None outside a pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token = folder / "token"
    if not host or not port or not token.exists():
        return None
    if ":" in host:
        host = f"[{host}]"
    server = checked_server(f"https://{host}:{port}", "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT")
    namespace = folder / "namespace"
    return Access(
        server=server,
        credentials=StoredCredentials(token=CredentialFile("service account token", path=token)),
        authority=CredentialFile("service account ca.crt", path=folder / "ca.crt"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        proxy=proxy_from_environment(server, environ),
    )
