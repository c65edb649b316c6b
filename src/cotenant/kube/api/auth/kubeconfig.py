"""Reads kubeconfig files as kubectl does.

Several files are merged: for each named cluster, user and context, and for the current context, the first
file that has it wins. Relative paths are relative to the file that contains them.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import quote

from cotenant.kube.api.auth.access import Access, checked_server, in_cluster
from cotenant.kube.api.auth.credential_file import CredentialFile
from cotenant.kube.api.auth.credentials import Credentials, StoredCredentials
from cotenant.kube.api.auth.exec_plugin import IF_AVAILABLE, MODES, VERSIONS, ExecCredentials, ExecPlugin
from cotenant.kube.api.auth.kubeconfig_file import Cluster, Context, Exec, File, User, parse
from cotenant.kube.api.auth.proxy import Proxy, proxy_from_environment, proxy_from_url
from cotenant.kube.api.errors import BadKubeconfig

E = TypeVar("E")
EXEC_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True)
class _Entry(Generic[E]):
    """A named entry, with its file and field for messages."""

    path: Path
    field: str
    value: E

    def at(self, name: str) -> str:
        return f"{self.path}: {self.field}.{name}"

    def credential_file(self, name: str, data: str, file: str) -> CredentialFile | None:
        """Inline content wins over a file, as with kubectl."""
        if data:
            return CredentialFile(self.at(f"{name}-data"), data=_base64(data, self.at(f"{name}-data")))
        if file:
            return CredentialFile(self.at(name), path=self.path.parent / file)
        return None


@dataclass
class Kubeconfig:
    """All kubeconfig files, merged."""

    current: str = ""
    clusters: dict[str, _Entry[Cluster]] = field(default_factory=dict)
    users: dict[str, _Entry[User]] = field(default_factory=dict)
    contexts: dict[str, _Entry[Context]] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)

    def add(self, path: Path, file: File) -> None:
        self.paths.append(path)
        self.current = self.current or file.current_context
        for c in file.clusters:
            _put(self.clusters, path, "clusters", "cluster", c.name, c.cluster or Cluster())
        for u in file.users:
            _put(self.users, path, "users", "user", u.name, u.user or User())
        for x in file.contexts:
            _put(self.contexts, path, "contexts", "context", x.name, x.context or Context())

    def access(self, environ: Mapping[str, str], context: str = "") -> Access:
        """Returns how to reach the cluster of `context`, or of the current context."""
        files = ", ".join(map(str, self.paths))
        chosen = context or self.current
        if not chosen:
            raise BadKubeconfig(f"{files}: current-context is not set: choose one of {_names(self.contexts)}")
        if chosen not in self.contexts:
            raise BadKubeconfig(f"{files}: no context {chosen!r}: there is {_names(self.contexts)}")
        entry = self.contexts[chosen]
        if entry.value.cluster not in self.clusters:
            raise BadKubeconfig(f"{entry.at('cluster')}: no cluster {entry.value.cluster!r} in {files}")
        cluster = self.clusters[entry.value.cluster]
        user = _Entry(entry.path, entry.field, User())
        if entry.value.user:
            if entry.value.user not in self.users:
                raise BadKubeconfig(f"{entry.at('user')}: no user {entry.value.user!r} in {files}")
            user = self.users[entry.value.user]
        authority = cluster.credential_file(
            "certificate-authority",
            cluster.value.certificate_authority_data,
            cluster.value.certificate_authority,
        )
        if not cluster.value.server:
            raise BadKubeconfig(f"{cluster.at('server')}: missing")
        server = checked_server(cluster.value.server, cluster.at("server"))
        return Access(
            server=server,
            credentials=_credentials(user, cluster, authority),
            authority=authority,
            verify=not cluster.value.insecure_skip_tls_verify,
            server_name=cluster.value.tls_server_name,
            namespace=entry.value.namespace or "default",
            headers=_impersonation(user),
            proxy=_proxy(cluster, server, environ),
        )


def read(paths: Sequence[Path]) -> Kubeconfig:
    """Reads and merges the files. Missing files are skipped, as kubectl does."""
    merged = Kubeconfig()
    for path in paths:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BadKubeconfig(f"{path}: cannot be read: {error.strerror}") from None
        merged.add(path, parse(path, data))
    return merged


def files(environ: Mapping[str, str]) -> list[Path]:
    """Lists the files of KUBECONFIG, else ~/.kube/config."""
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"]


def find(environ: Mapping[str, str] = os.environ, *, path: Path | None = None, context: str = "") -> Access:
    """Finds the cluster as kubectl does: in `path`, else in the files of KUBECONFIG, else in ~/.kube/config,
    else as the pod's own service account.
    """
    if path is not None:
        if not path.exists():
            raise BadKubeconfig(f"{path}: no such file")
        return read([path]).access(environ, context)
    paths = files(environ)
    merged = read(paths)
    if merged.clusters or merged.contexts:
        return merged.access(environ, context)
    access = in_cluster(environ)
    if access is None:
        looked = ", ".join(map(str, paths))
        raise BadKubeconfig(f"no cluster: nothing in {looked}, and this is not a pod: set KUBECONFIG")
    return access


def _put(into: dict[str, _Entry[E]], path: Path, section: str, inner: str, name: str, value: E) -> None:
    field = f"{section}[{name}].{inner}"
    if name not in into:
        into[name] = _Entry(path, field, value)
    elif into[name].path == path:
        raise BadKubeconfig(f"{path}: {section}[{name}]: twice in one file")


def _names(entries: Mapping[str, object]) -> str:
    return ", ".join(sorted(entries)) or "none"


def _base64(text: str, field: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadKubeconfig(f"{field}: not base64") from None


def _proxy(cluster: _Entry[Cluster], server: str, environ: Mapping[str, str]) -> Proxy | None:
    """`proxy-url` wins over the environment, also for addresses that NO_PROXY excludes, as with kubectl."""
    if cluster.value.proxy_url:
        return proxy_from_url(cluster.value.proxy_url, cluster.at("proxy-url"))
    return proxy_from_environment(server, environ)


def _credentials(
    user: _Entry[User], cluster: _Entry[Cluster], authority: CredentialFile | None
) -> Credentials:
    value = user.value
    if value.auth_provider is not None:
        raise BadKubeconfig(f"{user.at('auth-provider')}: removed from Kubernetes: use exec")
    if value.username or value.password:
        raise BadKubeconfig(
            f"{user.at('username')}: API servers no longer accept passwords: use a token or exec"
        )
    certificate = user.credential_file(
        "client-certificate", value.client_certificate_data, value.client_certificate
    )
    key = user.credential_file("client-key", value.client_key_data, value.client_key)
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise BadKubeconfig(f"{user.at(missing)}: missing: a certificate and its key go together")
    token = None
    if value.token_file:
        token = CredentialFile(user.at("tokenFile"), path=user.path.parent / value.token_file)
    elif value.token:
        token = CredentialFile(user.at("token"), data=value.token.encode())
    if value.exec is None or token is not None:
        return StoredCredentials(token, certificate, key)
    if certificate is not None:
        raise BadKubeconfig(f"{user.at('exec')}: either a plugin or client-certificate, not both")
    return ExecCredentials(_plugin(user, value.exec, cluster.value, authority))


def _plugin(user: _Entry[User], exec: Exec, cluster: Cluster, authority: CredentialFile | None) -> ExecPlugin:
    if exec.api_version not in VERSIONS:
        raise BadKubeconfig(
            f"{user.at('exec.apiVersion')}: {exec.api_version!r} is not one of {', '.join(VERSIONS)}"
        )
    if not exec.command:
        raise BadKubeconfig(f"{user.at('exec.command')}: missing")
    mode = exec.interactive_mode or (IF_AVAILABLE if exec.api_version == VERSIONS[1] else "")
    if mode not in MODES:
        raise BadKubeconfig(f"{user.at('exec.interactiveMode')}: {mode!r} is not one of {', '.join(MODES)}")
    cluster_info = None
    if exec.provide_cluster_info:
        cluster_info = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "proxy-url": cluster.proxy_url,
            "certificate-authority-data": None
            if authority is None
            else base64.b64encode(authority.read()).decode(),
            "config": next((e.extension for e in cluster.extensions if e.name == EXEC_EXTENSION), None),
        }
        cluster_info = {key: content for key, content in cluster_info.items() if content}
    # A bare name is looked up in PATH; anything with a slash is relative to the file.
    command = str(user.path.absolute().parent / exec.command) if "/" in exec.command else exec.command
    return ExecPlugin(
        where=user.at("exec"),
        command=command,
        args=tuple(exec.args),
        env={variable.name: variable.value for variable in exec.env},
        version=exec.api_version,
        interactive=mode,
        install_hint=exec.install_hint,
        cluster=cluster_info,
    )


def _impersonation(user: _Entry[User]) -> dict[str, tuple[str, ...]]:
    value = user.value
    if not value.act_as:
        if value.as_uid or value.as_groups or value.as_user_extra:
            raise BadKubeconfig(f"{user.at('as')}: missing: as-uid, as-groups and as-user-extra need it")
        return {}
    headers: dict[str, tuple[str, ...]] = {"Impersonate-User": (value.act_as,)}
    if value.as_uid:
        headers["Impersonate-Uid"] = (value.as_uid,)
    if value.as_groups:
        headers["Impersonate-Group"] = tuple(value.as_groups)
    for key, contents in value.as_user_extra.items():
        headers[f"Impersonate-Extra-{quote(key, safe='')}"] = tuple(contents)
    for name, values in headers.items():
        if any(not text.isprintable() for text in values):
            raise BadKubeconfig(f"{user.at('as')}: a line break or another control character in {name}")
    return headers
