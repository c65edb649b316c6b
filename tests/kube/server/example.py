"""A whole part in its smallest form: leader-only, with settings, a metric, a route and a label that it needs."""

from dataclasses import dataclass

from aiohttp import web

from cotenant.kube.api.informers import Need
from cotenant.kube.api.resources import PODS
from cotenant.kube.parts.part import Context, Part, Term
from cotenant.kube.pods.fields import PodFields
from cotenant.observe.exposition import gauge
from cotenant.observe.metrics import Entry
from cotenant.settings.declaring import Seconds


@dataclass(frozen=True)
class ExampleSettings:
    """Greets versions of workloads."""

    greeting: str = "hello"
    """What is said to each."""
    pause: Seconds = 5.0
    """Time between two greetings."""


class Example(Part):
    name, leader_only, section = "example", True, ("example", ExampleSettings)

    def __init__(self, context: Context) -> None:
        self._pods, self._own = context.informers[PODS].store, context.section(ExampleSettings)
        self.terms: list[Term] = []
        gauge(Entry("gauge", "server", "example_terms", "Terms."), context.registry).set_function(
            lambda: len(self.terms)
        )

    @classmethod
    def needs(cls, settings):
        return (Need(PODS, PodFields(labels=frozenset({"pod-template-hash"}))),)

    async def begin(self, term: Term) -> None:
        self.terms.append(term)

    def routes(self):
        return [web.get("/example", self._greet)]

    async def _greet(self, _: web.Request) -> web.Response:
        versions = {pod.metadata.labels.get("pod-template-hash") for pod in self._pods}
        return web.json_response([f"{self._own.greeting}, {each}" for each in sorted(versions - {None})])
