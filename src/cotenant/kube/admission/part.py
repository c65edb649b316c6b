"""Reviews pods for the API server, as a part of every server."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from cotenant.kube.admission.serving import webhook_routes
from cotenant.kube.admission.settings import AdmissionSettings
from cotenant.kube.parts.part import Context, Part


class Admission(Part):
    """Answers on every server, whether it leads or not."""

    name = "webhook"
    section = ("admission", AdmissionSettings)

    def __init__(self, context: Context) -> None:
        self._routes = webhook_routes(
            context.section(AdmissionSettings), context.settings.dialects, context.registry
        )

    def routes(self) -> Sequence[web.RouteDef]:
        return self._routes
