"""Parses a kubeconfig file: the fields that we use, by their names in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cotenant.kube.api.errors import BadKubeconfig


class Extension(msgspec.Struct):
    name: str = ""
    extension: Any = None


class Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[Extension] = []


class Variable(msgspec.Struct):
    name: str
    value: str = ""


class Exec(msgspec.Struct, rename="camel"):
    command: str = ""
    args: list[str] = []
    env: list[Variable] = []
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class User(msgspec.Struct, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    act_as: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    username: str = ""
    password: str = ""
    auth_provider: Any = None
    exec: Exec | None = None


class Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(msgspec.Struct):
    name: str
    cluster: Cluster | None = None


class NamedUser(msgspec.Struct):
    name: str
    user: User | None = None


class NamedContext(msgspec.Struct):
    name: str
    context: Context | None = None


class File(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[NamedCluster] = []
    users: list[NamedUser] = []
    contexts: list[NamedContext] = []


def parse(path: Path, data: bytes) -> File:
    """Parses a file. An error says where the mistake is, never the text: it may be a token."""
    problem = ""
    try:
        return msgspec.convert(_without_nulls(msgspec.yaml.decode(data)) or {}, File)
    except msgspec.ValidationError as error:
        problem = str(error)
    except msgspec.DecodeError as error:
        mark = getattr(error.__context__, "problem_mark", None)
        problem = "not YAML" + (f" at line {mark.line + 1}, column {mark.column + 1}" if mark else "")
    raise BadKubeconfig(f"{path}: {problem}")


def _without_nulls(value: Any) -> Any:
    """Removes fields that are null: they count as absent, and kubectl itself writes such files."""
    if isinstance(value, dict):
        return {key: _without_nulls(content) for key, content in value.items() if content is not None}
    if isinstance(value, list):
        return [_without_nulls(content) for content in value]
    return value
