"""States in CEL what a GpuScaler must hold over several of its fields, for the API server.

Each rule is also a check in Python (`scaling/specification.py`, `signals/checking.py`), which knows more: it
parses URLs and reports every fault. A test sends the same mistakes to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from cotenant.core.units import format_duration
from cotenant.scaling import specification as scaler
from cotenant.scaling.durations import AUTO, GO_DURATION, Span
from cotenant.signals import specification as signals
from cotenant.signals.checking import ELSEWHERE, IN_REDIS


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression that must be true, and what people read if it is not."""

    expression: str
    message: str
    field: str = ""
    """The field that is at fault, inside the object of the rule; empty: the object itself."""


def duration_rule(span: Span) -> Rule:
    """Returns the rule of a text that is a Go duration."""
    least, most = format_duration(span.least), format_duration(span.most)
    bounded = (
        f"self.matches(r'{GO_DURATION}') && self != '' "
        f"&& duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"
    )
    expression = f"self == '{AUTO}' || ({bounded})" if span.auto else bounded
    return Rule(expression, f"write a Go duration like 90s, 1h30m or 500ms, {span}")


def _one_of(*names: str) -> str:
    return f"[{', '.join(f'has(self.{name})' for name in names)}].filter(given, given).size() == 1"


def _has_scheme(schemes: str) -> str:
    return f"self.url.matches(r'^({schemes})://.')"


_QUEUES = ("redis", "rabbitmq", "prometheus", "http", "nats")
_THRESHOLD, _WAITED = "scaleDownThreshold", "scaleDownThresholdWhenOthersWait"
_SECOND = "a second sample is required: give inFlight with one of "
_TELLS_ALREADY = "this queue tells it already: remove inFlight"
_USER = (
    Rule(
        "!has(self.username) || has(self.passwordFrom)",
        "username needs passwordFrom, the Secret with its password",
        ".username",
    ),
    Rule("!has(self.passwordFrom) || has(self.username)", "passwordFrom needs username", ".passwordFrom"),
)
_TOKEN = Rule(
    "!has(self.tokenFrom) || !has(self.username)", "give either a token, or user and password", ".tokenFrom"
)
_HTTP = (Rule(_has_scheme("https?"), "write http://HOST:PORT or https://HOST:PORT", ".url"), *_USER, _TOKEN)
_DEPTH_ONLY = (
    "!has(self.{0}) || has(self.inFlight) || has(self.{0}.inFlight) "
    "|| (has(self.{0}.arrived) && has(self.{0}.completed))"
)

RULES: Mapping[type[msgspec.Struct], tuple[Rule, ...]] = {
    scaler.GpuScalerSpec: (
        Rule(
            f"!has(self.{_WAITED}) || has(self.{_THRESHOLD})",
            f"{_WAITED} needs {_THRESHOLD}, the time if nobody waits",
            f".{_WAITED}",
        ),
        Rule(
            f"!has(self.{_WAITED}) || !has(self.{_THRESHOLD}) || !self.{_WAITED}.matches(r'{GO_DURATION}') "
            f"|| !self.{_THRESHOLD}.matches(r'{GO_DURATION}') "
            f"|| duration(self.{_WAITED}) <= duration(self.{_THRESHOLD})",
            f"{_WAITED} is longer than {_THRESHOLD}: give a shorter time, or leave it out",
            f".{_WAITED}",
        ),
    ),
    scaler.Target: (
        Rule(
            "self == oldSelf",
            "the target cannot be replaced, since what was learned is about it: create another GpuScaler",
        ),
        Rule(
            "self.apiVersion.matches(r'^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$')",
            "write a group and version, such as apps/v1",
            ".apiVersion",
        ),
        Rule("self.kind.matches(r'^[A-Z][A-Za-z0-9]*$')", "write a kind, such as Deployment", ".kind"),
        Rule(
            "self.name.matches(r'^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')",
            "write the name of an object, such as room-scene",
            ".name",
        ),
    ),
    scaler.Replicas: (Rule("self.min <= self.max", "min is more than max: lower min or raise max", ".min"),),
    scaler.ProcessingTime: (
        Rule(
            "has(self.fixed) != has(self.query)",
            "give either fixed or query; leave processingTime out to have it learned",
        ),
    ),
    signals.QueueSpecification: (
        Rule(_one_of(*_QUEUES), f"give exactly one of {', '.join(_QUEUES)}"),
        Rule(
            "!has(self.redis) || !has(self.redis.list) || has(self.inFlight)",
            f"a Redis list tells only its depth: {_SECOND}{IN_REDIS}{ELSEWHERE}",
        ),
        Rule(
            "!has(self.rabbitmq) || !self.rabbitmq.url.startsWith('amqp') || has(self.inFlight)",
            "RabbitMQ over AMQP tells only its depth (the management API, an http URL, tells all): "
            + _SECOND
            + ELSEWHERE,
        ),
        *(
            Rule(
                _DEPTH_ONLY.format(name),
                f"this tells only the depth, unless {name} has inFlight, or arrived and completed, too: "
                + _SECOND
                + ELSEWHERE,
            )
            for name in ("prometheus", "http")
        ),
        Rule(
            "!has(self.inFlight) || !(has(self.inFlight.list) || has(self.inFlight.key)) || has(self.redis)",
            "only a queue in Redis has a list or a key: give prometheus, http or slots",
            ".inFlight",
        ),
        Rule(
            "!has(self.inFlight) || !(has(self.nats) || (has(self.redis) && has(self.redis.stream)) "
            "|| (has(self.rabbitmq) && self.rabbitmq.url.startsWith('http')) "
            "|| (has(self.prometheus) && has(self.prometheus.inFlight)) "
            "|| (has(self.http) && has(self.http.inFlight)))",
            _TELLS_ALREADY,
            ".inFlight",
        ),
    ),
    signals.InFlight: (
        Rule(
            "[has(self.list), has(self.key), has(self.prometheus), has(self.http), "
            "has(self.slots) && self.slots].filter(given, given).size() == 1",
            "give exactly one of list, key, prometheus, http, slots: true",
        ),
    ),
    signals.QuerySpecification: (
        Rule(_one_of("prometheus", "http"), "give exactly one of prometheus, http"),
    ),
    signals.Redis: (
        Rule(
            _has_scheme(r"rediss?(\+(sentinel|cluster))?"),
            "write redis://HOST:6379, rediss:// with TLS, redis+sentinel://HOST:26379/MASTER or "
            "redis+cluster://HOST:6379",
            ".url",
        ),
        Rule(
            "has(self.list) != has(self.stream)",
            "give either list, or stream and group: one of them is needed",
        ),
        Rule(
            "has(self.stream) == has(self.group)",
            "stream and group go together: the group's lag is the backlog",
        ),
        Rule(
            "!has(self.username) || has(self.passwordFrom)",
            "username needs passwordFrom, the Secret with its password",
            ".username",
        ),
    ),
    signals.RabbitMQ: (
        Rule(
            _has_scheme("amqps?|https?"),
            "write http://HOST:15672 (management API) or amqp://HOST:5672, https and amqps with TLS",
            ".url",
        ),
        *_USER,
    ),
    signals.PrometheusQuery: _HTTP,
    signals.PrometheusQueue: _HTTP,
    signals.HttpQuery: _HTTP,
    signals.HttpQueue: _HTTP,
    signals.Nats: (
        Rule(_has_scheme("nats|tls"), "write nats://HOST:4222, or tls://HOST:4222", ".url"),
        *_USER,
        _TOKEN,
    ),
    signals.Tls: (
        Rule(
            "has(self.certificateFrom) == has(self.keyFrom)",
            "a client certificate needs both certificateFrom and keyFrom",
        ),
        Rule(
            "!(has(self.caFrom) && has(self.insecureSkipVerify) && self.insecureSkipVerify)",
            "insecureSkipVerify with caFrom makes no sense: remove one of them",
            ".insecureSkipVerify",
        ),
    ),
}
"""By the type whose objects they are about. Types that inherit do not inherit rules."""
