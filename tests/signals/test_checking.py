"""What a specification must hold: each fault is one sentence with the field and the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cluster.testbed.certificates import Authority
from hypothesis import given, settings
from hypothesis import strategies as st
from signals.examples import COUNTS, EXAMPLES

from cotenant.core.errors import BadInput
from cotenant.signals.checking import AMQP, HTTP, NATS, REDIS, redis_url
from cotenant.signals.credentials import Credentials, read_credentials, tls_context
from cotenant.signals.json_path import find, number, parse_path
from cotenant.signals.signal import SignalError
from cotenant.signals.specification import QuerySpecification, QueueSpecification, SecretKeyReference, Tls
from cotenant.signals.urls import parse_url

SECRET = {"secret": {"name": "queue", "key": "password"}}
LIST = {"url": "redis://queue", "list": "jobs"}
SLOTS = {"slots": True}
PROMETHEUS = {"url": "http://prometheus:9090", "query": "sum(depth)"}

FAULTS: list[tuple[dict[str, Any], str]] = [
    ({}, "there is no queue: give one of redis, rabbitmq, prometheus, http, nats"),
    ({"inFlight": SLOTS}, "there is no queue"),
    ({"redis": LIST}, "inFlight: a Redis list tells only its depth: a second sample is required"),
    ({"redis": LIST, "inFlight": {}}, "there is no sample: give one of list, key, prometheus, http, slots"),
    ({"redis": LIST, "inFlight": {"slots": False}}, "there is no sample"),
    ({"redis": LIST, "inFlight": {"list": "a", "key": "b"}}, "key: list and key are given: give only one"),
    ({"redis": LIST | {"stream": "s"}, "inFlight": SLOTS}, "list: give either list, or stream and group"),
    ({"redis": {"url": "redis://q"}, "inFlight": SLOTS}, "list: name the list in which messages wait"),
    ({"redis": {"url": "redis://q", "stream": "s"}}, "group: name the consumer group"),
    (
        {"redis": {"url": "redis://q", "stream": "s", "group": "g"}, "inFlight": SLOTS},
        "inFlight: redis tells it already here: remove inFlight",
    ),
    ({"redis": LIST | {"url": "queue:6379"}, "inFlight": SLOTS}, "url: it does not begin with redis://"),
    (
        {"redis": LIST | {"url": "redis://"}, "inFlight": SLOTS},
        "url: it has a space, a control character or no host",
    ),
    ({"redis": LIST | {"url": "redis://q:99999"}, "inFlight": SLOTS}, "url: 99999 is not a port"),
    (
        {"redis": LIST | {"url": "redis://q?db=1"}, "inFlight": SLOTS},
        "url: options after ? are not supported",
    ),
    ({"redis": LIST | {"url": "redis://q/jobs"}, "inFlight": SLOTS}, "url: after the host only the number"),
    ({"redis": LIST | {"url": "redis://a,b"}, "inFlight": SLOTS}, "url: it names 2 hosts; one is allowed"),
    ({"redis": LIST | {"url": "redis+sentinel://a"}, "inFlight": SLOTS}, "url: the master's name is missing"),
    (
        {"redis": LIST | {"url": "redis+cluster://a/3"}, "inFlight": SLOTS},
        "url: a Redis Cluster has no databases",
    ),
    ({"redis": LIST | {"url": "redis://169.254.169.254"}, "inFlight": SLOTS}, "is a link-local address"),
    ({"redis": LIST | {"url": "redis://[fd00:ec2::254]"}, "inFlight": SLOTS}, "a cloud's metadata service"),
    ({"redis": LIST | {"username": "a"}, "inFlight": SLOTS}, "username: it needs passwordFrom"),
    (
        {"redis": LIST | {"url": "redis://:x@q", "passwordFrom": SECRET}, "inFlight": SLOTS},
        "url: it has credentials, and so do username or passwordFrom",
    ),
    ({"redis": LIST | {"tls": {}}, "inFlight": SLOTS}, "tls: redis is not encrypted: write rediss://"),
    (
        {"redis": LIST | {"url": "rediss://q", "tls": {"keyFrom": SECRET}}, "inFlight": SLOTS},
        "certificateFrom: a client certificate needs both",
    ),
    ({"redis": LIST | {"sentinelPasswordFrom": SECRET}, "inFlight": SLOTS}, "only a redis+sentinel URL has"),
    ({"rabbitmq": {"url": "amqp://q", "queue": "jobs"}}, "inFlight: RabbitMQ over AMQP tells only its depth"),
    ({"rabbitmq": {"url": "http://q", "queue": "jobs"}, "inFlight": SLOTS}, "rabbitmq tells it already here"),
    (
        {"rabbitmq": {"url": "amqp://q", "queue": "jobs"}, "inFlight": {"list": "a"}},
        "inFlight.list: only a queue in Redis has one",
    ),
    (
        {"rabbitmq": {"url": "amqp://q/a", "vhost": "b", "queue": "jobs"}, "inFlight": SLOTS},
        "vhost: the url names a virtual host too",
    ),
    (
        {"rabbitmq": {"url": "http://q", "queue": "jobs", "passwordFrom": SECRET}},
        "passwordFrom: it needs username",
    ),
    ({"prometheus": PROMETHEUS}, "this query tells only the depth, unless prometheus has inFlight"),
    ({"prometheus": PROMETHEUS | {"arrived": "a"}}, "this query tells only the depth"),
    ({"prometheus": PROMETHEUS | {"inFlight": "a"}, "inFlight": SLOTS}, "prometheus tells it already here"),
    (
        {"prometheus": PROMETHEUS | {"url": "http://p?x=1", "inFlight": "a"}},
        "url: what stands after ? is not used",
    ),
    (
        {"prometheus": PROMETHEUS | {"inFlight": "a", "headers": {"Authorization": "x"}}},
        "credentials go to passwordFrom or tokenFrom",
    ),
    (
        {"prometheus": PROMETHEUS | {"inFlight": "a", "headers": {"X-A": "x\r\nHost: y"}}},
        "",
    ),
    ({"http": {"url": "http://q", "path": "a..b", "inFlight": "c"}}, "path: 'a..b' is not a path"),
    ({"http": {"url": "http://q", "path": "a", "inFlight": "[x]"}}, "inFlight: '[x]' is not a path"),
    (
        {
            "http": {
                "url": "http://q",
                "path": "a",
                "inFlight": "b",
                "tokenFrom": SECRET,
                "username": "u",
                "passwordFrom": SECRET,
            }
        },
        "tokenFrom: give either a token, or user and password",
    ),
    ({"nats": {"url": "nats://q", "stream": "a.b", "consumer": "c"}}, "stream: a name has no space, dot"),
    (
        {"nats": {"url": "nats://q/x", "stream": "a", "consumer": "c"}},
        "url: nothing may stand after the port",
    ),
    (
        {"redis": LIST, "rabbitmq": {"url": "http://q", "queue": "a"}},
        "rabbitmq: redis and rabbitmq are given",
    ),
]


@pytest.mark.parametrize(("written", "said"), FAULTS)
def test_a_fault_is_said_with_its_field(written: dict[str, Any], said: str):
    with pytest.raises((BadInput, msgspec.ValidationError)) as failed:
        msgspec.convert(written, QueueSpecification)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    "written",
    [
        {"redis": LIST, "inFlight": SLOTS},
        {"redis": LIST | {"passwordFrom": SECRET}, "inFlight": {"list": "working"}},
        {"redis": {"url": "redis://q/3", "stream": "s", "group": "g"}},
        {
            "redis": LIST | {"url": "rediss+sentinel://a:1,b:2,[::1]:3/main/2", "tls": {}},
            "inFlight": {"key": "n"},
        },
        {"redis": LIST | {"url": "redis+cluster://a,b"}, "inFlight": {"prometheus": PROMETHEUS}},
        {"rabbitmq": {"url": "amqps://q/team%2Fa", "queue": "jobs"}, "inFlight": SLOTS},
        {"rabbitmq": {"url": "https://q:15671/rabbit", "queue": "jobs", "vhost": "/"}},
        {"prometheus": PROMETHEUS | {"arrived": "a", "completed": "b"}},
        {"http": {"url": "http://q/x?y=1", "path": "$", "inFlight": "a[0]['b'].c"}},
        {"nats": {"url": "nats://a,b:1", "stream": "jobs", "consumer": "workers"}},
    ],
)
def test_good_queues_are_accepted(written: dict[str, Any]):
    msgspec.convert(written, QueueSpecification)


@pytest.mark.parametrize("field", ["list", "key", "prometheus", "http", "slots"])
def test_the_sentence_about_a_list_names_every_remedy(field: str):
    with pytest.raises(BadInput, match=rf"\b{field}\b"):
        msgspec.convert({"redis": LIST}, QueueSpecification)


def test_a_query_is_exactly_one():
    with pytest.raises(BadInput, match="give one of prometheus, http"):
        msgspec.convert({}, QuerySpecification)
    with pytest.raises(BadInput, match="http: prometheus and http are given"):
        msgspec.convert(
            {"prometheus": PROMETHEUS, "http": {"url": "http://a", "path": "b"}}, QuerySpecification
        )


def test_a_field_that_nobody_knows_is_refused():
    with pytest.raises(msgspec.ValidationError, match="lst"):
        msgspec.convert({"redis": {"url": "redis://q", "lst": "jobs"}}, QueueSpecification)


def test_names_and_keys_of_secrets_are_checked():
    with pytest.raises(BadInput, match="name: 'A b' is not the name of a Secret"):
        SecretKeyReference(name="A b", key="k")
    with pytest.raises(BadInput, match=r"key: '\.\./k' is not a key of a Secret"):
        SecretKeyReference(name="a", key="../k")


def attempt(call: Callable[[], Any], kind: type[Exception]) -> tuple[Any, str]:
    """Returns the result, or what the exception says."""
    try:
        return call(), ""
    except kind as error:
        return None, str(error)


@given(st.text(max_size=60))
@settings(max_examples=50)
def test_no_text_breaks_the_parser_of_urls_and_none_is_quoted(text: str):
    for head in ("", "redis://", "redis://user:", "redis://user:SECRET"):
        for schemes in (REDIS, AMQP, HTTP, NATS):
            url, said = attempt(lambda: parse_url(head + text, schemes, several=True), BadInput)  # noqa: B023
            assert url or said.startswith("url: ")
            assert "SECRET" not in f"{url}{url!r}{said}"


@pytest.mark.parametrize("character", "/?#@:%[] \\\"'")
def test_a_password_that_is_not_encoded_is_never_shown(character: str):
    for where in (f"{character}SECRET", f"SECRET{character}", f"SECRET{character}SECRET"):
        read, said = attempt(lambda: redis_url(f"redis://user:{where}@queue:6379/0"), BadInput)  # noqa: B023
        assert "SECRET" not in f"{read}{said}"
        assert said or read[0].hosts == (("queue", 6379),)


@given(st.text(max_size=40))
@settings(max_examples=50)
def test_no_text_breaks_the_parser_of_paths(text: str):
    steps, said = attempt(lambda: parse_path(text, "path"), BadInput)
    if steps is None:
        assert said.startswith("path: ")
    else:
        with pytest.raises(SignalError):
            number(find({}, steps, "it"), "it")


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()))
def test_a_figure_is_never_nan_infinite_or_negative(value: object):
    figure, said = attempt(lambda: number(value, "it"), SignalError)
    assert 0 < len(said) < 200 if figure is None else 0 <= figure <= 1e18


def test_a_servers_words_are_cut_and_hold_no_credential():
    credentials = Credentials("reader", "p@ss/word", "token-1")
    said = credentials.hide("ERR p@ss/word p%40ss%2Fword token-1\r\nx" + "y" * 1000)
    assert said.startswith("ERR *** *** *** x")
    assert len(said) < 250
    assert "word" not in repr(credentials)


def test_a_secret_that_is_empty_too_long_or_missing_is_named():
    async def secrets(_name: str, key: str) -> str:
        if key == "missing":
            raise SignalError("there is no such key in it")
        return {"empty": "\n", "long": "x" * (2 << 20)}[key]

    for key in ("empty", "long", "missing"):
        reference = msgspec.convert({"caFrom": {"secret": {"name": "queue", "key": key}}}, Tls)
        with pytest.raises(SignalError, match=f"key {key} of Secret queue"):
            asyncio.run(read_credentials(secrets, {}, reference, None))


def test_authorities_may_have_names_beside_them_that_are_not_ascii(tmp_path):
    bundle = "# Főtanúsítvány\n" + Authority(tmp_path, "queues").pair.certificate.read_text()
    context = asyncio.run(tls_context(None, Credentials(authorities=bundle)))
    assert len(context.get_ca_certs()) == 1
    with pytest.raises(SignalError, match=r"tls\.caFrom: its value is not a certificate"):
        asyncio.run(tls_context(None, Credentials(authorities="Főtanúsítvány")))


def test_every_example_of_the_page_is_asked_of_a_real_server():
    assert {kind: sum(kind in each for each in EXAMPLES) for kind in COUNTS} == COUNTS
    assert len(EXAMPLES) == sum(COUNTS.values())
