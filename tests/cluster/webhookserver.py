"""The webhook with its certificates, and nothing else of the server: what test_webhook.py starts, kills and stops.

    python -m cluster.webhookserver '{"kubeconfig": ..., "address": ..., "port": ..., "webhook": {...}, "times": {...}}'

`dies_at` names a step of the keeper (`_write`, `_publish`, `_use`) at which the process ends as by kill -9: `before`
it, or `after`. Every connection is closed after its answer, so that every question meets the newest certificate.
"""

import asyncio
import base64
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from cotenant.kube.admission.configuration import NAME
from cotenant.kube.admission.serving import webhook_routes
from cotenant.kube.admission.settings import WebhookSettings
from cotenant.kube.api.auth import kubeconfig
from cotenant.kube.api.client import Client
from cotenant.kube.certificates.keeper import CertificateKeeper, KeeperTimes
from cotenant.kube.server.listener import runner_for
from cotenant.kube.settings import Settings
from cotenant.observe.endpoints import endpoints
from cotenant.observe.exposition import Registry, text_of


async def main(how: dict[str, Any]) -> None:
    settings = Settings(namespace=how["namespace"], webhook=WebhookSettings(**how.get("webhook", {})))
    async with Client(kubeconfig.find({}, path=Path(how["kubeconfig"]))) as client:
        keeper = CertificateKeeper(client, settings, NAME, KeeperTimes(**how.get("times", {})))
        if "dies_at" in how:
            die(keeper, *how["dies_at"])
        registry = Registry()

        async def metrics() -> bytes:
            return text_of(registry)

        routes = endpoints(
            ready=lambda: {"certificates": None if keeper.ready else "there is none yet"},
            metrics=metrics,
            state=metrics,
        )
        webhook = webhook_routes(settings.admission, settings.dialects, registry)
        runner = runner_for([*routes, *webhook, web.post("/label", label)])
        runner.app.on_response_prepare.append(close)
        await runner.setup()
        context = keeper.server_context(client_certificates=False)
        await web.TCPSite(runner, how["address"], how["port"], ssl_context=context).start()
        await keeper.run()


async def close(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Connection"] = "close"  # a client that is not told would use it once more
    response.force_close()


async def label(request: web.Request) -> web.Response:
    """Another webhook, which changes pods after ours, so that ours is asked again."""
    asked = (await request.json())["request"]
    steps = [{"op": "add", "path": "/metadata/labels", "value": {"seen": "by-another"}}]
    patch = base64.b64encode(json.dumps(steps).encode()).decode()
    response = {"uid": asked["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
    if (asked["object"]["metadata"].get("labels") or {}).get("seen"):
        response = {"uid": asked["uid"], "allowed": True}
    return web.json_response(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )


def die(keeper: CertificateKeeper, when: str, step: str) -> None:
    whole = getattr(keeper, step)

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def plain(*arguments: Any) -> Any:
        if when == "after":
            whole(*arguments)
        end()

    async def awaited(*arguments: Any) -> Any:
        if when == "after":
            await whole(*arguments)
        end()

    setattr(keeper, step, awaited if asyncio.iscoroutinefunction(whole) else plain)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(json.loads(sys.argv[1])))
