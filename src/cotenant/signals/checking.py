"""Checks what a specification of a queue or a query must hold over several of its fields.

Every sentence begins with the field at fault, seen from the Struct that is checked, and names the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cotenant.core.errors import BadInput
from cotenant.signals.json_path import parse_path
from cotenant.signals.urls import ServerUrl, parse_url

if TYPE_CHECKING:
    from cotenant.signals import specification as spec

REDIS = {
    "redis": 6379,
    "rediss": 6379,
    "redis+sentinel": 26379,
    "rediss+sentinel": 26379,
    "redis+cluster": 6379,
    "rediss+cluster": 6379,
}
AMQP = {"amqp": 5672, "amqps": 5671}
HTTP = {"http": 80, "https": 443}
NATS = {"nats": 4222, "tls": 4222}
SECURE = frozenset({"rediss", "rediss+sentinel", "rediss+cluster", "amqps", "https", "tls"})

IN_REDIS = "list (a list of messages in work), key (a number or a collection), "
ELSEWHERE = "prometheus or http (a query), or slots: true (replicas at work at this instant, by their slots)"
_SECRET_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_HEADER = re.compile(r"[-A-Za-z0-9]{1,128}")
_RESERVED_HEADERS = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "host",
        "proxy-authorization",
        "transfer-encoding",
    }
)


def check_secret(reference: spec.SecretKeyReference) -> None:
    if not _SECRET_NAME.fullmatch(reference.name):
        raise BadInput(f"name: {reference.name[:80]!a} is not the name of a Secret, such as redis-password")
    if not _SECRET_KEY.fullmatch(reference.key):
        raise BadInput(f"key: {reference.key[:80]!a} is not a key of a Secret, such as password")


def check_tls(tls: spec.Tls) -> None:
    if (tls.certificate_from is None) != (tls.key_from is None):
        lacking = "keyFrom" if tls.key_from is None else "certificateFrom"
        raise BadInput(f"{lacking}: a client certificate needs both certificateFrom and keyFrom")
    if tls.insecure_skip_verify and tls.ca_from is not None:
        raise BadInput("insecureSkipVerify: with caFrom it makes no sense: remove one of them")


def redis_url(text: str) -> tuple[ServerUrl, str, int]:
    """Parses a Redis URL into its parts, the name of a Sentinel's master (or nothing) and the database."""
    url = parse_url(text, REDIS, several="+" in text.partition("://")[0])
    if url.query:
        raise BadInput(
            "url: options after ? are not supported: use the fields username, passwordFrom and tls"
        )
    parts = [part for part in url.path.split("/") if part]
    master = ""
    if url.scheme.endswith("+sentinel"):
        if not parts:
            raise BadInput(
                "url: the master's name is missing: redis+sentinel://host:26379/NAME or .../NAME/0"
            )
        master = parts.pop(0)
    database = parts.pop(0) if parts else "0"
    if parts or not re.fullmatch(r"[0-9]{1,5}", database):
        raise BadInput("url: after the host only the number of a database may stand: redis://queue:6379/0")
    if url.scheme.endswith("+cluster") and int(database):
        raise BadInput("url: a Redis Cluster has no databases but 0")
    return url, master, int(database)


def check_redis(redis: spec.Redis) -> None:
    url, master, _ = redis_url(redis.url)
    check_access(url, redis.username, redis.password_from, redis.tls, alone=True)
    if (redis.sentinel_password_from or redis.sentinel_username) and not master:
        raise BadInput("sentinelPasswordFrom: only a redis+sentinel URL has Sentinels")
    if redis.sentinel_username and not redis.sentinel_password_from:
        raise BadInput("sentinelUsername: it needs sentinelPasswordFrom")
    if redis.list is None and redis.stream is None:
        raise BadInput("list: name the list in which messages wait, or a stream and its group")
    if redis.list is not None and (redis.stream is not None or redis.group is not None):
        raise BadInput("list: give either list, or stream and group")
    if redis.stream is not None and redis.group is None:
        raise BadInput("group: name the consumer group of the stream: its lag is the backlog")


def check_rabbitmq(rabbitmq: spec.RabbitMQ) -> None:
    url = parse_url(rabbitmq.url, AMQP | HTTP)
    check_access(url, rabbitmq.username, rabbitmq.password_from, rabbitmq.tls)
    if url.query:
        raise BadInput(
            "url: options after ? are not supported: use the fields username, passwordFrom and tls"
        )
    if url.scheme in AMQP and url.path.count("/") > 1:
        raise BadInput("url: the path of an AMQP URL is one virtual host: write a / in its name as %2F")
    if url.scheme in AMQP and url.path not in {"", "/"} and rabbitmq.vhost is not None:
        raise BadInput("vhost: the url names a virtual host too: remove one of them")


def check_http(access: spec.HttpAccess, *, query: bool = True) -> None:
    url = parse_url(access.url, HTTP)
    check_access(url, access.username, access.password_from, access.tls)
    if url.query and not query:
        raise BadInput("url: what stands after ? is not used: give the address before /api/v1/query")
    if access.token_from is not None and (access.username is not None or url.username is not None):
        raise BadInput("tokenFrom: give either a token, or user and password")
    for name, value in (access.headers or {}).items():
        if not _HEADER.fullmatch(name) or name.lower() in _RESERVED_HEADERS:
            raise BadInput(
                f"headers: {name[:80]!a} cannot be set here; credentials go to passwordFrom or tokenFrom"
            )
        if not re.fullmatch(r"[\x20-\x7e]*", value):
            raise BadInput(f"headers.{name}: its value has a character that a header cannot carry")


def check_paths(paths: Mapping[str, str | None]) -> None:
    for name, path in paths.items():
        if path is not None:
            parse_path(path, name)


def check_nats(nats: spec.Nats) -> None:
    url = parse_url(nats.url, NATS, several=True)
    check_access(url, nats.username, nats.password_from, nats.tls)
    if url.path not in {"", "/"} or url.query:
        raise BadInput("url: nothing may stand after the port: nats://queue:4222")
    if nats.token_from is not None and (nats.username is not None or url.username is not None):
        raise BadInput("tokenFrom: give either a token, or user and password")
    for name, value in (("stream", nats.stream), ("consumer", nats.consumer)):
        if not re.fullmatch(r"[^\s.*>/\\\x00-\x1f]+", value):
            raise BadInput(f"{name}: a name has no space, dot, *, >, / or \\ in it")


def check_access(
    url: ServerUrl,
    username: str | None,
    password: spec.FromSecret | None,
    tls: spec.Tls | None,
    *,
    alone: bool = False,
) -> None:
    """Checks that credentials are given once; `alone`: a password needs no user."""
    if (username is not None or password is not None) and (url.username or url.password) is not None:
        raise BadInput(
            "url: it has credentials, and so do username or passwordFrom: take them out of the url"
        )
    if username is not None and password is None:
        raise BadInput("username: it needs passwordFrom, the Secret with its password")
    if password is not None and username is None and not alone:
        raise BadInput("passwordFrom: it needs username")
    if tls is not None and url.scheme not in SECURE:
        raise BadInput(f"tls: {url.scheme} is not encrypted: write {secure_scheme(url.scheme)}:// in url")


def secure_scheme(scheme: str) -> str:
    if scheme == "nats":
        return "tls"
    head, plus, tail = scheme.partition("+")
    return f"{head}s{plus}{tail}"


def check_one(parts: Mapping[str, object], what: str) -> str:
    """Checks that exactly one is given and returns its name."""
    given = [name for name, value in parts.items() if value]
    if not given:
        raise BadInput(f"{what}: give one of {', '.join(parts)}")
    if len(given) > 1:
        raise BadInput(f"{given[1]}: {' and '.join(given)} are given: give only one")
    return given[0]


def check_queue(queue: spec.QueueSpecification) -> None:
    kinds = ("redis", "rabbitmq", "prometheus", "http", "nats")
    kind = check_one({name: getattr(queue, name) for name in kinds}, "there is no queue")
    sample = queue.in_flight
    if sample is not None:
        if (sample.list or sample.key) and kind != "redis":
            field = "list" if sample.list else "key"
            raise BadInput(f"inFlight.{field}: only a queue in Redis has one: give prometheus, http or slots")
        if tells_in_flight(queue):
            raise BadInput(f"inFlight: {kind} tells it already here: remove inFlight")
    elif depth_only := _depth_only(queue):
        choices = f"{IN_REDIS if kind == 'redis' else ''}{ELSEWHERE}"
        raise BadInput(
            f"inFlight: {depth_only}: a second sample is required: give inFlight with one of {choices}"
        )


def tells_in_flight(queue: spec.QueueSpecification) -> bool:
    """Whether the queue itself tells how many messages are in flight."""
    if queue.redis is not None:
        return queue.redis.stream is not None
    if queue.rabbitmq is not None:
        return parse_url(queue.rabbitmq.url, AMQP | HTTP).scheme in HTTP
    figures = queue.prometheus or queue.http
    return figures is None or figures.in_flight is not None


def _depth_only(queue: spec.QueueSpecification) -> str | None:
    """Says which queue it is that tells nothing but its depth."""
    if tells_in_flight(queue):
        return None
    if queue.redis is not None:
        return "a Redis list tells only its depth"
    if queue.rabbitmq is not None:
        return "RabbitMQ over AMQP tells only its depth (the management API, an http URL, tells all)"
    figures = queue.prometheus or queue.http
    if figures is not None and figures.arrived is not None and figures.completed is not None:
        return None
    what = "this query" if queue.prometheus else "this path"
    name = "prometheus" if queue.prometheus else "http"
    return f"{what} tells only the depth, unless {name} has inFlight, or arrived and completed, too"
