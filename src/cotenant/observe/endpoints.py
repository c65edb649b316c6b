"""Serves /healthz, /readyz, /metrics and /state; the server and the agent offer the same four.

Nothing here is secret and nothing can be changed through it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from cotenant.observe.text_format import CONTENT_TYPE


def endpoints(
    *,
    ready: Callable[[], Mapping[str, str | None]],
    metrics: Callable[[], Awaitable[bytes]],
    state: Callable[[], Awaitable[bytes]],
    also: Callable[[], Mapping[str, str | None]] = dict,
) -> list[web.RouteDef]:
    """The routes, for `app.add_routes`. `ready` gives for each named check None, or the reason why it is not
    ready; `metrics` is Prometheus' text format and `state` is JSON. What `also` gives is shown with the
    checks and does not count for the answer's status.
    """

    async def show_health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def show_readiness(_: web.Request) -> web.Response:
        checks = ready()
        status = 200 if all(reason is None for reason in checks.values()) else 503
        return web.Response(status=status, text=readiness_text({**checks, **also()}))

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def show_state(_: web.Request) -> web.Response:
        return web.Response(body=await state(), content_type="application/json")

    return [
        web.get("/healthz", show_health),
        web.get("/readyz", show_readiness),
        web.get("/metrics", show_metrics),
        web.get("/state", show_state),
    ]


def readiness_text(checks: Mapping[str, str | None]) -> str:
    """One line for each check, as Kubernetes' own components write them."""
    lines = (f"[+]{name} ok" if reason is None else f"[-]{name}: {reason}" for name, reason in checks.items())
    return "".join(f"{line}\n" for line in lines) or "ok\n"
