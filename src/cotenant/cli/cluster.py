"""How commands find the cluster that they ask: kubectl's options, and errors that say what to do next."""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cotenant.core.errors import BadInput, CotenantError

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

ANSWERS = 3.0
"""Seconds within which an API server says at least its version; a big list may take longer."""


@dataclass(frozen=True)
class Where:
    """The cluster that is meant, and the namespace in it."""

    kubeconfig: Path | None = None
    context: str = ""
    namespace: str | None = None
    everywhere: bool = False

    @property
    def named(self) -> bool:
        return self.kubeconfig is not None or bool(self.context)


def where_options(function: F) -> F:
    """--kubeconfig and --context; the command is given `where`."""
    return _given_where(function, _connection_options)


def namespace_options(function: F) -> F:
    """-n and -A too."""

    def options(inner: F) -> F:
        inner = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces.")(
            inner
        )
        inner = click.option(
            "-n", "--namespace", metavar="NAME", help="A namespace, in place of the context's own."
        )(inner)
        return _connection_options(inner)

    return _given_where(function, options)


def _connection_options(function: F) -> F:
    function = click.option("--context", default="", metavar="NAME", help="A context of the kubeconfig.")(
        function
    )
    return click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="In place of $KUBECONFIG and ~/.kube/config."
    )(function)


def _given_where(function: F, options: Callable[[F], F]) -> F:
    @functools.wraps(function)
    def with_where(
        *args: Any,
        kubeconfig: Path | None,
        context: str,
        namespace: str | None = None,
        everywhere: bool = False,
        **others: Any,
    ) -> Any:
        if namespace is not None and everywhere:
            raise BadInput("--namespace and --all-namespaces exclude each other")
        return function(*args, where=Where(kubeconfig, context, namespace, everywhere), **others)

    return options(with_where)  # type: ignore[arg-type]


def require_libraries() -> None:
    """Whoever installed the program for one machine may have none of what a cluster takes."""
    try:
        importlib.import_module("cotenant.kube.api.client")
    except ModuleNotFoundError as error:
        raise CotenantError(
            f"{error.name} is missing: commands about a cluster need more than those about this machine: "
            "pip install 'cotenant[cluster]'"
        ) from None


def ask(where: Where, work: Callable[[Client, str], Awaitable[T]]) -> T:
    """Do `work` with a client and the namespace that is meant."""
    require_libraries()
    from cotenant.kube.api.auth.kubeconfig import find
    from cotenant.kube.api.client import Client
    from cotenant.kube.api.connection import ConnectionSettings
    from cotenant.kube.api.errors import KubeError

    access = find(path=where.kubeconfig, context=where.context)

    async def with_client() -> T:
        async with Client(access, ConnectionSettings(request=30.0)) as client:
            await client.get_path(
                "/version", dict, within=ANSWERS
            )  # a person is not kept waiting for nothing
            return await work(client, where.namespace or access.namespace)

    try:
        return asyncio.run(with_client())
    except KubeError as error:
        raise CotenantError(f"{error}: {_next_step(error, access.server)}") from None


def _next_step(error: Exception, server: str) -> str:
    from cotenant.kube.api import errors

    steps: dict[type[Exception], str] = {
        errors.Untrusted: f"{server} shows another certificate than the kubeconfig promises: take it anew",
        errors.Unreachable: f"is the API server at {server} up? `kubectl get nodes` asks it too; "
        "another cluster is chosen with --context or --kubeconfig",
        errors.Unauthorized: "log in anew, or choose another user with --context",
        errors.Forbidden: "ask an administrator for the right: docs/operating.md lists what is read",
        errors.NoCredential: "log in anew, or choose another user with --context",
    }
    found = next((step for kind, step in steps.items() if isinstance(error, kind)), "")
    return found or "`kubectl get --raw /readyz` tells how the API server is"
