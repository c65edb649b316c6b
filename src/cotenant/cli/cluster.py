"""Connects commands to a cluster: kubectl's options, and errors that say what to do next."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cotenant.cli.completing import contexts, namespaces
from cotenant.core.errors import BadInput, CotenantError

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

ANSWERS = 3.0
"""Timeout in seconds of the first request, /version, so that nobody waits long for an API server that is
down; a big list may take longer.
"""


@dataclass(frozen=True)
class Where:
    """The cluster and the namespace that the command line names."""

    kubeconfig: Path | None = None
    context: str = ""
    namespace: str | None = None
    everywhere: bool = False

    @property
    def named(self) -> bool:
        return self.kubeconfig is not None or bool(self.context)


def where_options(function: F) -> F:
    """Adds --kubeconfig and --context; the command receives them as `where`.

    A namespace is accepted and has no effect, as in `kubectl get nodes -n team`.
    """

    def options(inner: F) -> F:
        return _connection_options(click.option("-n", "--namespace", hidden=True)(inner))

    return _given_where(function, options)


def namespace_options(function: F) -> F:
    """Adds --kubeconfig, --context, -n and -A; the command receives them as `where`."""
    return _with_namespace(function, "The namespace; by default the context's own.", "All namespaces.")


def scope_options(function: F) -> F:
    """Adds the same to a command that is about all namespaces unless one is named."""
    return _with_namespace(function, "Only this namespace.", "All namespaces: the default.")


def _with_namespace(function: F, about_one: str, about_all: str) -> F:
    def options(inner: F) -> F:
        inner = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help=about_all)(inner)
        inner = click.option("-n", "--namespace", metavar="NAME", help=about_one, shell_complete=namespaces)(
            inner
        )
        return _connection_options(inner)

    return _given_where(function, options)


def _connection_options(function: F) -> F:
    function = click.option(
        "--context", default="", metavar="NAME", help="A context of the kubeconfig.", shell_complete=contexts
    )(function)
    return click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Instead of $KUBECONFIG and ~/.kube/config."
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
        own = {"kubeconfig": kubeconfig, "context": context, "namespace": namespace, "everywhere": everywhere}
        where = _merged(own, click.get_current_context().find_root().params)
        return function(*args, where=where, **others)

    return options(with_where)  # type: ignore[arg-type]


def _merged(own: Mapping[str, Any], before: Mapping[str, Any]) -> Where:
    """Joins the command's own options with those before it (`kubectl cotenant -n team explain`)."""
    for given in (before, own):
        if given.get("namespace") is not None and given.get("everywhere"):
            raise BadInput("--namespace and --all-namespaces exclude each other")
    scope = own if own.get("namespace") is not None or own.get("everywhere") else before
    kubeconfig = own.get("kubeconfig") or before.get("kubeconfig")
    return Where(
        Path(kubeconfig) if kubeconfig else None,
        own.get("context") or before.get("context") or "",
        scope.get("namespace"),
        bool(scope.get("everywhere")),
    )


def where_of(ctx: click.Context) -> Where:
    """Reads the cluster's options from a command line that is still being typed."""
    return _merged(ctx.params, ctx.find_root().params)


def require_libraries(module: str = "cotenant.kube.api.client") -> None:
    """Fails with a hint if the extra `cluster`, which the module needs, is not installed; one machine does
    not need it.
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CotenantError(
            f"{error.name} is missing: cluster commands need more packages than local ones: "
            "in the source tree, pipx install --force '.[cluster]', or as docs/install.md says"
        ) from None


def ask(where: Where, work: Callable[[Client, str], Awaitable[T]]) -> T:
    """Runs `work` with an API client and the chosen namespace; errors of the API name a next step."""
    require_libraries()
    import asyncio

    from cotenant.kube.api.auth.kubeconfig import find
    from cotenant.kube.api.client import Client
    from cotenant.kube.api.connection import ConnectionSettings
    from cotenant.kube.api.errors import KubeError

    access = find(path=where.kubeconfig, context=where.context)

    async def with_client() -> T:
        async with Client(access, ConnectionSettings(request=30.0)) as client:
            await client.get_path("/version", dict, within=ANSWERS)
            return await work(client, where.namespace or access.namespace)

    try:
        return asyncio.run(with_client())
    except KubeError as error:
        raise CotenantError(f"{error}: {_next_step(error, access.server)}") from None


def _next_step(error: Exception, server: str) -> str:
    from cotenant.kube.api import errors

    steps: dict[type[Exception], str] = {
        errors.Untrusted: f"{server} has a certificate that the kubeconfig's CA did not sign: "
        "download the kubeconfig again",
        errors.Unreachable: f"is the API server at {server} up? Try `kubectl get nodes`; "
        "choose another cluster with --context or --kubeconfig",
        errors.Unauthorized: "log in again, or choose another user with --context",
        errors.Forbidden: "ask an administrator for this permission: docs/operating.md lists what is read",
        errors.NoCredential: "log in again, or choose another user with --context",
    }
    found = next((step for kind, step in steps.items() if isinstance(error, kind)), "")
    return found or "`kubectl get --raw /readyz` shows the API server's health"
