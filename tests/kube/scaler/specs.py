"""GpuScalers that are accepted, and mistakes that are refused: by the API server and by our own reader alike."""

import copy
from typing import Any

BASE: dict[str, Any] = {
    "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "room-scene"},
    "mode": "act",
    "replicas": {"min": 0, "max": 8},
    "backlog": {
        "target": "3s",
        "queue": {
            "redis": {"url": "redis://queue:6379", "list": "room-scene"},
            "inFlight": {"list": "room-scene.working"},
        },
        "processingTime": {"fixed": "800ms"},
    },
    "scaleDownThreshold": "15m",
    "scaleDownThresholdWhenOthersWait": "1m",
}
ABSENT = object()


def spec(**changes: Any) -> dict[str, Any]:
    """Returns BASE with changes by path: `backlog__target="5s"`."""
    made = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, last = path.split("__")
        inside = made
        for each in parents:
            inside = inside.setdefault(each, {})
        if value is ABSENT:
            del inside[last]
        else:
            inside[last] = value
    return made


def queue(**kinds: Any) -> dict[str, Any]:
    return spec(backlog__queue=kinds)


SECRET = {"secret": {"name": "queue", "key": "password"}}
PROMETHEUS = {"url": "http://prometheus:9090", "query": "sum(waiting)"}
HTTP = {"url": "http://api:8080/stats", "path": "depth"}
MANAGEMENT = {"url": "http://rabbit:15672", "queue": "jobs", "username": "u", "passwordFrom": SECRET}

ACCEPTED: dict[str, dict[str, Any]] = {
    "as in the docs": spec(),
    "the least that is needed": {
        "target": {"name": "x"},
        "replicas": {"max": 1},
        "backlog": {"queue": {"rabbitmq": {"url": "http://rabbit:15672", "queue": "jobs"}}},
    },
    "a threshold that is learned": spec(scaleDownThreshold="auto"),
    "auto and a time while others wait": spec(
        scaleDownThreshold="auto", scaleDownThresholdWhenOthersWait="20s"
    ),
    "no threshold": spec(scaleDownThreshold=ABSENT, scaleDownThresholdWhenOthersWait=ABSENT),
    "equal thresholds": spec(scaleDownThreshold="60s", scaleDownThresholdWhenOthersWait="1m"),
    "Go's longest form": spec(scaleDownThreshold="1h0m0s", backlog__target="0.5s"),
    "a ReplicationController": spec(
        target={"apiVersion": "v1", "kind": "ReplicationController", "name": "rc"}
    ),
    "a kind of others": spec(
        target={"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "a.b-c"}
    ),
    "replicas at work by their slots": spec(backlog__queue__inFlight={"slots": True}),
    "a key": spec(backlog__queue__inFlight={"key": "working"}),
    "a query for what is in flight": spec(backlog__queue__inFlight={"prometheus": PROMETHEUS}),
    "a stream": queue(
        redis={
            "url": "rediss+sentinel://a:26379,b:26379/main/0",
            "stream": "jobs",
            "group": "workers",
            "passwordFrom": SECRET,
            "tls": {"caFrom": SECRET},
        }
    ),
    "RabbitMQ over AMQP": queue(
        rabbitmq={"url": "amqps://rabbit:5671", "queue": "jobs"}, inFlight={"slots": True}
    ),
    "RabbitMQ's management API": queue(rabbitmq=MANAGEMENT),
    "Prometheus": queue(prometheus={**PROMETHEUS, "inFlight": "sum(working)"}),
    "Prometheus with counters": queue(
        prometheus={**PROMETHEUS, "arrived": "sum(arrived_total)", "completed": "sum(completed_total)"}
    ),
    "JSON": queue(http={**HTTP, "inFlight": "busy", "headers": {"X-Scope-OrgID": "a"}, "tokenFrom": SECRET}),
    "NATS": queue(nats={"url": "nats://nats:4222", "stream": "jobs", "consumer": "workers"}),
    "a processing time that is asked for": spec(
        backlog__processingTime={"query": {"prometheus": PROMETHEUS}}
    ),
    "a response time": spec(responseTime={"target": "2s", "query": {"prometheus": PROMETHEUS}}),
    "concurrency": spec(backlog__concurrency=64),
    "observe": spec(mode="observe"),
}

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no target": (
        spec(target=ABSENT),
        "spec.target: Required value",
        "spec.target: this field is required",
    ),
    "no name": (
        spec(target__name=ABSENT),
        "spec.target.name: Required value",
        "spec.target.name: this field is required",
    ),
    "a name that is none": (
        spec(target__name="Room_Scene"),
        "spec.target.name: Invalid value: write the name of an object, such as room-scene",
        "spec.target.name: 'Room_Scene' is not the name of an object, such as room-scene",
    ),
    "a kind that is none": (
        spec(target__kind="deployment"),
        "spec.target.kind: Invalid value: write a kind, such as Deployment",
        "spec.target.kind: 'deployment' is not a kind, such as Deployment",
    ),
    "a version that is none": (
        spec(target__apiVersion="apps"),
        "spec.target.apiVersion: Invalid value: write a group and version, such as apps/v1",
        "spec.target.apiVersion: 'apps' is not a group and version, such as apps/v1",
    ),
    "another mode": (
        spec(mode="watch"),
        'spec.mode: Unsupported value: "watch": supported values: "act", "observe"',
        "spec.mode: 'watch' is not one of act, observe",
    ),
    "no replicas": (
        spec(replicas=ABSENT),
        "spec.replicas: Required value",
        "spec.replicas: this field is required",
    ),
    "no max": (
        spec(replicas={"min": 1}),
        "spec.replicas.max: Required value",
        "spec.replicas.max: this field is required",
    ),
    "min above max": (
        spec(replicas={"min": 9, "max": 8}),
        "spec.replicas.min: Invalid value: min is more than max: lower min or raise max",
        "spec.replicas.min: 9 is more than max, which is 8: lower min or raise max",
    ),
    "min below 0": (
        spec(replicas__min=-1),
        "spec.replicas.min: Invalid value: -1",
        "spec.replicas.min: -1 is not from 0 to 10000",
    ),
    "max 0": (
        spec(replicas__max=0),
        "spec.replicas.max: Invalid value: 0",
        "spec.replicas.max: 0 is not from 1 to 10000",
    ),
    "too many": (
        spec(replicas__max=10_001),
        "spec.replicas.max: Invalid value: 10001",
        "spec.replicas.max: 10001 is not from 1 to 10000",
    ),
    "replicas as a text": (
        spec(replicas__max="8"),
        'spec.replicas.max: Invalid value: "string": spec.replicas.max in body must be of type integer',
        "spec.replicas.max: '8' is not a whole number",
    ),
    "no backlog": (
        spec(backlog=ABSENT),
        "spec.backlog: Required value",
        "spec.backlog: this field is required",
    ),
    "a target without unit": (
        spec(backlog__target="5"),
        'spec.backlog.target: Invalid value: "5": write a Go duration like 90s, 1h30m or 500ms, from 100ms to 1h',
        "spec.backlog.target: '5' is not a duration: write it like 90s, 10m, 1h30m, 500ms; did you mean 5s?",
    ),
    "a target of 0": (
        spec(backlog__target="0s"),
        'spec.backlog.target: Invalid value: "0s": write a Go duration like 90s, 1h30m or 500ms, from 100ms to 1h',
        "spec.backlog.target: '0s' is not from 100ms to 1h",
    ),
    "a target of hours": (
        spec(backlog__target="61m"),
        "from 100ms to 1h",
        "spec.backlog.target: '61m' is not from 100ms to 1h",
    ),
    "a target in days": (
        spec(backlog__target="1d"),
        "from 100ms to 1h",
        "spec.backlog.target: '1d' counts in days, which Go durations do not: write 24h for 1d",
    ),
    "a target that overflows": (
        spec(backlog__target="999999999h"),
        "spec.backlog.target: Invalid value",
        "spec.backlog.target: '999999999h' is longer than 36500d",
    ),
    "no queue": (
        spec(backlog__queue=ABSENT),
        "spec.backlog.queue: Required value",
        "spec.backlog.queue: this field is required",
    ),
    "an empty queue": (
        queue(),
        "spec.backlog.queue: Invalid value: give exactly one of redis, rabbitmq, prometheus, http, nats",
        "give one of redis, rabbitmq, prometheus, http, nats",
    ),
    "two queues": (
        queue(rabbitmq=MANAGEMENT, nats={"url": "nats://n:4222", "stream": "s", "consumer": "c"}),
        "spec.backlog.queue: Invalid value: give exactly one of",
        "rabbitmq and nats are given: give only one",
    ),
    "a Redis list alone": (
        queue(redis={"url": "redis://queue:6379", "list": "room-scene"}),
        (
            "spec.backlog.queue: Invalid value: a Redis list tells only its depth: a second sample is required: "
            "give inFlight with one of list"
        ),
        (
            "spec.backlog.queue.inFlight: a Redis list tells only its depth: a second sample is required: "
            "give inFlight with one of list"
        ),
    ),
    "RabbitMQ over AMQP alone": (
        queue(rabbitmq={"url": "amqp://rabbit:5672", "queue": "jobs"}),
        "RabbitMQ over AMQP tells only its depth",
        "RabbitMQ over AMQP tells only its depth",
    ),
    "Prometheus' depth alone": (
        queue(prometheus=PROMETHEUS),
        "this tells only the depth, unless prometheus has inFlight, or arrived and completed, too",
        "tells only the depth, unless prometheus has inFlight, or arrived and completed, too",
    ),
    "half of the counters": (
        queue(http={**HTTP, "arrived": "in"}),
        "unless http has inFlight, or arrived and completed, too",
        "unless http has inFlight, or arrived and completed, too",
    ),
    "two second samples": (
        spec(backlog__queue__inFlight={"list": "a", "key": "b"}),
        "spec.backlog.queue.inFlight: Invalid value: give exactly one of list, key, prometheus, http, slots: true",
        "list and key are given: give only one",
    ),
    "slots that are false": (
        spec(backlog__queue__inFlight={"slots": False}),
        "give exactly one of list, key, prometheus, http, slots: true",
        "spec.backlog.queue.inFlight",
    ),
    "a list of another queue": (
        queue(rabbitmq={"url": "amqp://rabbit:5672", "queue": "jobs"}, inFlight={"list": "a"}),
        "spec.backlog.queue.inFlight: Invalid value: only a queue in Redis has a list or a key",
        "spec.backlog.queue.inFlight.list: only a queue in Redis has one",
    ),
    "a second sample that is not needed": (
        queue(rabbitmq=MANAGEMENT, inFlight={"slots": True}),
        "spec.backlog.queue.inFlight: Invalid value: this queue tells it already: remove inFlight",
        "spec.backlog.queue.inFlight: rabbitmq tells it already here: remove inFlight",
    ),
    "neither list nor stream": (
        spec(backlog__queue__redis__list=ABSENT),
        "spec.backlog.queue.redis: Invalid value: give either list, or stream and group",
        "spec.backlog.queue.redis.list: name the list in which messages wait, or a stream and its group",
    ),
    "a stream without group": (
        queue(redis={"url": "redis://queue:6379", "stream": "jobs"}),
        "spec.backlog.queue.redis: Invalid value: stream and group go together",
        "spec.backlog.queue.redis.group: name the consumer group",
    ),
    "a URL of something else": (
        spec(backlog__queue__redis__url="http://queue:6379"),
        "spec.backlog.queue.redis.url: Invalid value: write redis://HOST:6379",
        "spec.backlog.queue.redis.url",
    ),
    "a user without password": (
        queue(rabbitmq={"url": "http://rabbit:15672", "queue": "jobs", "username": "u"}),
        "spec.backlog.queue.rabbitmq.username: Invalid value: username needs passwordFrom",
        "spec.backlog.queue.rabbitmq.username: it needs passwordFrom",
    ),
    "a Secret that cannot be": (
        spec(backlog__queue__redis__passwordFrom={"secret": {"name": "No/Secret", "key": "k"}}),
        "spec.backlog.queue.redis.passwordFrom.secret.name",
        "spec.backlog.queue.redis.passwordFrom.secret.name",
    ),
    "half of a client certificate": (
        queue(
            nats={
                "url": "tls://n:4222",
                "stream": "s",
                "consumer": "c",
                "tls": {"certificateFrom": SECRET},
            }
        ),
        "spec.backlog.queue.nats.tls: Invalid value: a client certificate needs both",
        "a client certificate needs both certificateFrom and keyFrom",
    ),
    "fixed and query": (
        spec(backlog__processingTime={"fixed": "1s", "query": {"prometheus": PROMETHEUS}}),
        "spec.backlog.processingTime: Invalid value: give either fixed or query; leave processingTime out",
        "spec.backlog.processingTime: give either fixed or query; leave processingTime out to have it learned",
    ),
    "no processing time": (
        spec(backlog__processingTime={}),
        "spec.backlog.processingTime: Invalid value: give either fixed or query",
        "spec.backlog.processingTime: give either fixed or query",
    ),
    "a processing time of 0": (
        spec(backlog__processingTime__fixed="0s"),
        'spec.backlog.processingTime.fixed: Invalid value: "0s": write a Go duration',
        "spec.backlog.processingTime.fixed: 0 is no processing time: leave processingTime out",
    ),
    "a query of two": (
        spec(backlog__processingTime={"query": {"prometheus": PROMETHEUS, "http": HTTP}}),
        "spec.backlog.processingTime.query: Invalid value: give exactly one of prometheus, http",
        "prometheus and http are given: give only one",
    ),
    "concurrency 0": (
        spec(backlog__concurrency=0),
        "spec.backlog.concurrency: Invalid value: 0",
        "spec.backlog.concurrency: 0 is not from 1 to 10000",
    ),
    "a response time without target": (
        spec(responseTime={"query": {"prometheus": PROMETHEUS}}),
        "spec.responseTime.target: Required value",
        "spec.responseTime.target: this field is required",
    ),
    "a response time without query": (
        spec(responseTime={"target": "2s"}),
        "spec.responseTime.query: Required value",
        "spec.responseTime.query: this field is required",
    ),
    "a threshold of no time": (
        spec(scaleDownThreshold="0s"),
        'spec.scaleDownThreshold: Invalid value: "0s": write a Go duration like 90s, 1h30m or 500ms, from 1s to 8760h, or auto',
        "spec.scaleDownThreshold: '0s' is not from 1s to 8760h, or auto",
    ),
    "a threshold in words": (
        spec(scaleDownThreshold="15 minutes"),
        'spec.scaleDownThreshold: Invalid value: "15 minutes": write a Go duration',
        "spec.scaleDownThreshold: '15 minutes' is not a duration",
    ),
    "a threshold below zero": (
        spec(scaleDownThreshold="-5m"),
        'spec.scaleDownThreshold: Invalid value: "-5m": write a Go duration',
        "spec.scaleDownThreshold: '-5m' is not a duration",
    ),
    "a longer one while others wait": (
        spec(scaleDownThresholdWhenOthersWait="16m"),
        (
            "spec.scaleDownThresholdWhenOthersWait: Invalid value: scaleDownThresholdWhenOthersWait is longer than "
            "scaleDownThreshold"
        ),
        "spec.scaleDownThresholdWhenOthersWait: 16m is longer than scaleDownThreshold, which is 15m",
    ),
    "only the one while others wait": (
        spec(scaleDownThreshold=ABSENT),
        (
            "spec.scaleDownThresholdWhenOthersWait: Invalid value: scaleDownThresholdWhenOthersWait needs "
            "scaleDownThreshold"
        ),
        "spec.scaleDownThresholdWhenOthersWait: it needs scaleDownThreshold, the time if nobody waits",
    ),
    "auto while others wait": (
        spec(scaleDownThresholdWhenOthersWait="auto"),
        'spec.scaleDownThresholdWhenOthersWait: Invalid value: "auto": write a Go duration',
        "spec.scaleDownThresholdWhenOthersWait: auto is for scaleDownThreshold only",
    ),
    "a URL of any length": (
        spec(backlog__queue__redis__url="redis://" + "h" * 3000),
        "spec.backlog.queue.redis.url: Too long: may not be more than 2048",
        "spec.backlog.queue.redis.url: it has 3008 characters; at most 2048 are allowed",
    ),
}
"""What is sent, what the API server answers, and what our reader says."""

MISSPELT: dict[str, tuple[dict[str, Any], str, str]] = {
    "a threshold": (
        spec(scaleDownTreshold="1m"),
        'unknown field "spec.scaleDownTreshold"',
        "spec.scaleDownTreshold: there is no such field: did you mean scaleDownThreshold?",
    ),
    "a limit": (
        spec(replicas__maximum=5),
        'unknown field "spec.replicas.maximum"',
        "spec.replicas.maximum: there is no such field: did you mean max?",
    ),
    "a list": (
        spec(backlog__queue__redis__lists="x"),
        'unknown field "spec.backlog.queue.redis.lists"',
        "spec.backlog.queue.redis.lists: there is no such field: did you mean list?",
    ),
}
"""Refused by kubectl, and by every client that asks for strict validation; others drop the field with a warning."""
