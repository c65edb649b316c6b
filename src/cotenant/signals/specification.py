"""Declares how a queue or a query is written in YAML: what stands below `queue:` and `query:` of a scaler.

Imports no client library, so that a specification can be read and checked without any of them. The docstring
below a field is its documentation, also in the CustomResourceDefinition. `checking.py` has the rules over
several fields.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from cotenant.signals import checking

Name = Annotated[str, Meta(min_length=1, max_length=512)]
Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Expression = Annotated[str, Meta(min_length=1, max_length=8192)]
SecretName = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
SecretKey = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
HeaderName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[-A-Za-z0-9]+$")]
HeaderValue = Annotated[str, Meta(max_length=1024, pattern=r"^[\x20-\x7e]*$")]
Headers = Annotated[dict[HeaderName, HeaderValue], Meta(max_length=16)]


class Specification(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """A part of a specification: camelCase in YAML, and a field that nobody knows is an error."""


class SecretKeyReference(Specification, frozen=True, kw_only=True):
    """One value of a Secret in the scaler's own namespace."""

    name: SecretName
    """Name of the Secret."""
    key: SecretKey
    """Key in the Secret's data."""

    def __post_init__(self) -> None:
        checking.check_secret(self)


class FromSecret(Specification, frozen=True, kw_only=True):
    """Where a credential comes from."""

    secret: SecretKeyReference
    """The Secret's name and the key in it."""


class Tls(Specification, frozen=True, kw_only=True):
    """TLS of a connection whose URL asks for it (`rediss`, `amqps`, `https`, `tls`). Without it the system's
    authorities are trusted.
    """

    ca_from: FromSecret | None = None
    """Certificates of the authorities to trust, in PEM, instead of the system's."""
    certificate_from: FromSecret | None = None
    """Client certificate in PEM, for servers that ask for one. Needs keyFrom."""
    key_from: FromSecret | None = None
    """Private key of the client certificate in PEM. Needs certificateFrom."""
    server_name: Annotated[str, Meta(min_length=1, max_length=253)] | None = None
    """Name that the server's certificate must carry, if it is not the URL's host."""
    insecure_skip_verify: bool = False
    """Accept any certificate. Anybody on the path can then read the credentials: for tests only."""

    def __post_init__(self) -> None:
        checking.check_tls(self)


class Redis(Specification, frozen=True, kw_only=True):
    """A Redis list, or a consumer group of a Redis stream. Valkey and other servers that speak the protocol
    as well.
    """

    url: Url
    """redis://host:6379/0, rediss:// with TLS, redis+sentinel://host:26379,host:26379/master-name/0,
    redis+cluster://host:6379,host:6379; rediss+sentinel and rediss+cluster with TLS. The number at the end
    is the database.
    """
    list: Name | None = None
    """Name of the list in which messages wait. A list tells only its depth: inFlight is needed too."""
    stream: Name | None = None
    """Name of the stream. Needs group."""
    group: Name | None = None
    """Consumer group of the stream whose lag is the backlog; pending entries are in flight. Needs Redis 7 to
    be exact.
    """
    username: Name | None = None
    """ACL user; `default` if absent."""
    password_from: FromSecret | None = None
    """Password of the user."""
    sentinel_username: Name | None = None
    """ACL user of the Sentinels, if they ask for one."""
    sentinel_password_from: FromSecret | None = None
    """Password of the Sentinels, if they ask for one."""
    tls: Tls | None = None
    """Certificates, for rediss URLs."""

    def __post_init__(self) -> None:
        checking.check_redis(self)


class RabbitMQ(Specification, frozen=True, kw_only=True):
    """A queue of RabbitMQ, asked over AMQP (its depth only) or over the management API (depth, counters,
    unacknowledged).
    """

    url: Url
    """http(s)://host:15672 of the management API: depth, unacknowledged messages and counters, at most 5 s
    old. Or amqp(s)://host:5672: the depth at this instant, and nothing else, so that `inFlight` is
    needed too.
    """
    queue: Name
    """Name of the queue. It must exist: it is never created."""
    vhost: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    """Virtual host. `/` if it is absent, or what the path of an AMQP URL says."""
    username: Name | None = None
    """User. Needs passwordFrom."""
    password_from: FromSecret | None = None
    """Password of the user."""
    tls: Tls | None = None
    """Certificates, for amqps and https URLs."""

    def __post_init__(self) -> None:
        checking.check_rabbitmq(self)


class HttpAccess(Specification, frozen=True, kw_only=True):
    """How a server is reached over HTTP. Redirects are not followed."""

    url: Url
    """http or https URL."""
    username: Name | None = None
    """User of basic authentication. Needs passwordFrom."""
    password_from: FromSecret | None = None
    """Password of basic authentication."""
    token_from: FromSecret | None = None
    """Bearer token."""
    headers: Headers | None = None
    """Further headers, such as X-Scope-OrgID. No credentials: all who can read this object see them."""
    tls: Tls | None = None
    """Certificates, for https URLs."""


class PrometheusQuery(HttpAccess, frozen=True, kw_only=True):
    """One figure from Prometheus, Thanos, Mimir or VictoriaMetrics. `url` is what /api/v1/query is appended
    to.
    """

    query: Expression
    """PromQL whose answer is one series or a scalar: sum(...) makes one of several. No series means that
    there is no figure, not zero: append `or vector(0)` if an absent series means zero.
    """

    def __post_init__(self) -> None:
        checking.check_http(self, query=False)


class PrometheusQueue(PrometheusQuery, frozen=True, kw_only=True):
    """A queue whose figures are in Prometheus. `query` is the backlog: the messages that wait."""

    in_flight: Expression | None = None
    """PromQL for the messages that are being worked on at this instant."""
    arrived: Expression | None = None
    """PromQL for the counter of messages that arrived. The counter itself, not its rate."""
    completed: Expression | None = None
    """PromQL for the counter of completed messages. The counter itself, not its rate."""


class HttpQuery(HttpAccess, frozen=True, kw_only=True):
    """One figure from a JSON document, fetched with GET."""

    path: Expression
    """Where the number is in the document: `depth`, `queues[0].depth`, `queues["room-scene"].depth`. `$` is
    the document itself.
    """

    def __post_init__(self) -> None:
        checking.check_http(self)
        checking.check_paths({"path": self.path})


class HttpQueue(HttpQuery, frozen=True, kw_only=True):
    """A queue whose figures are in one JSON document. `path` is the backlog: the messages that wait."""

    in_flight: Expression | None = None
    """Path of the number of messages that are being worked on at this instant."""
    arrived: Expression | None = None
    """Path of the counter of messages that arrived."""
    completed: Expression | None = None
    """Path of the counter of completed messages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checking.check_paths(
            {"inFlight": self.in_flight, "arrived": self.arrived, "completed": self.completed}
        )


class Nats(Specification, frozen=True, kw_only=True):
    """A consumer of a NATS JetStream stream: pending messages wait, unacknowledged ones are in flight."""

    url: Url
    """nats://host:4222, or tls://host:4222; several with commas between them."""
    stream: Name
    """Name of the stream."""
    consumer: Name
    """Name of the durable consumer. It must exist: it is never created."""
    username: Name | None = None
    """User. Needs passwordFrom."""
    password_from: FromSecret | None = None
    """Password of the user."""
    token_from: FromSecret | None = None
    """Token, instead of user and password."""
    tls: Tls | None = None
    """Certificates, for tls URLs."""

    def __post_init__(self) -> None:
        checking.check_nats(self)


class QuerySpecification(Specification, frozen=True, kw_only=True):
    """One figure from elsewhere: exactly one of the fields."""

    prometheus: PrometheusQuery | None = None
    """The answer of a PromQL query."""
    http: HttpQuery | None = None
    """A number in a JSON document."""

    def __post_init__(self) -> None:
        checking.check_one({"prometheus": self.prometheus, "http": self.http}, "there is no query")


class InFlight(QuerySpecification, frozen=True, kw_only=True):
    """The messages that are being worked on at this instant, for a queue that tells only its depth: exactly
    one of the fields.
    """

    list: Name | None = None
    """A list in the queue's own Redis to which workers move what they work on (BLMOVE)."""
    key: Name | None = None
    """A key in the queue's own Redis: a number that workers keep, or a set, sorted set, hash or list with an
    element for each message in work. A key that does not exist counts as 0.
    """
    slots: bool = False
    """true: replicas whose GPU is at work at that instant, by their slots, count as one message each. For
    workers that take one message at a time and use the GPU for most of it.
    """

    def __post_init__(self) -> None:
        fields = ("list", "key", "prometheus", "http", "slots")
        checking.check_one({name: getattr(self, name) for name in fields}, "there is no sample")


class QueueSpecification(Specification, frozen=True, kw_only=True):
    """Where work waits: exactly one of redis, rabbitmq, prometheus, http and nats."""

    redis: Redis | None = None
    """A Redis list or stream."""
    rabbitmq: RabbitMQ | None = None
    """A queue of RabbitMQ."""
    prometheus: PrometheusQueue | None = None
    """Figures in Prometheus."""
    http: HttpQueue | None = None
    """Figures in a JSON document."""
    nats: Nats | None = None
    """A consumer of NATS JetStream."""
    in_flight: InFlight | None = None
    """The messages being worked on, where the queue itself does not tell: a Redis list, RabbitMQ over AMQP,
    and Prometheus or HTTP without inFlight and without counters.
    """

    def __post_init__(self) -> None:
        checking.check_queue(self)
