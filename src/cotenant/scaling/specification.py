"""Declares the `spec` of a GpuScaler. `cotenant up` and the controller read the same fields.

The docstring below a field explains it, also in the CustomResourceDefinition, `kubectl explain` and docs/.
Each Struct checks itself; the API server makes the same checks in CEL. Durations stay the text that was
written, and a property has the seconds.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cotenant.core.errors import BadInput
from cotenant.core.idle import WHEN_OTHERS_WAIT, IdlePolicy
from cotenant.core.scaling import ScalingPolicy
from cotenant.scaling.durations import AUTO, THRESHOLD, Span, read_duration, read_threshold
from cotenant.signals.specification import QuerySpecification, QueueSpecification

MOST_REPLICAS = 10_000
MOST_CONCURRENCY = 10_000
TARGET = Span(0.1, 3600.0)
PROCESSING = Span(0.001, 86400.0)
WHEN_WAITED = Span(THRESHOLD.least, THRESHOLD.most)

_WRITTEN = Meta(min_length=1, max_length=64, examples=["5s", "800ms", "1h30m"])
TargetTime = Annotated[str, _WRITTEN, TARGET]
Name = Annotated[str, Meta(min_length=1, max_length=253)]
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_API_VERSION = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The workload whose replicas are changed: anything with a `scale` subresource."""

    api_version: Annotated[str, Meta(min_length=2, max_length=253)] = "apps/v1"
    """Group and version of its kind."""
    kind: Annotated[str, Meta(min_length=1, max_length=63)] = "Deployment"
    """Its kind: Deployment, StatefulSet, ReplicaSet, ReplicationController (in `v1`) or another."""
    name: Name
    """Its name, in the namespace of the GpuScaler."""

    def __post_init__(self) -> None:
        if not _API_VERSION.fullmatch(self.api_version):
            raise BadInput(f"apiVersion: {self.api_version!r} is not a group and version, such as apps/v1")
        if not _KIND.fullmatch(self.kind):
            raise BadInput(f"kind: {self.kind!r} is not a kind, such as Deployment")
        if not _NAME.fullmatch(self.name):
            raise BadInput(f"name: {self.name!r} is not the name of an object, such as room-scene")


class Replicas(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The limits of the number of replicas."""

    min: Annotated[int, Meta(ge=0, le=MOST_REPLICAS)] = 0
    """The fewest. 0 allows release of all GPUs: see scaleDownThreshold."""
    max: Annotated[int, Meta(ge=1, le=MOST_REPLICAS)]
    """The most."""

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise BadInput(f"min: {self.min} is more than max, which is {self.max}: lower min or raise max")


class ProcessingTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """How long a replica works on one message. A start only: what is measured counts after some messages."""

    fixed: Annotated[str, _WRITTEN, PROCESSING] | None = None
    """A figure that you know."""
    query: QuerySpecification | None = None
    """A query that answers with seconds."""

    def __post_init__(self) -> None:
        if (self.fixed is None) == (self.query is None):
            raise BadInput("give either fixed or query; leave processingTime out to have it learned")
        if self.fixed is not None and read_duration(self.fixed, "fixed") == 0:
            raise BadInput("fixed: 0 is no processing time: leave processingTime out to have it learned")
        _ = self.seconds

    @property
    def seconds(self) -> float | None:
        """The fixed figure."""
        return None if self.fixed is None else read_duration(self.fixed, "fixed", PROCESSING)


class Backlog(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The queue in which work waits, and how long it may wait."""

    target: TargetTime = "5s"
    """The longest that a message should wait until a replica takes it."""
    queue: QueueSpecification
    """Where messages wait: exactly one kind of queue."""
    processing_time: ProcessingTime | None = None
    """How long a replica works on one message. Learned if absent."""
    concurrency: Annotated[int, Meta(ge=1, le=MOST_CONCURRENCY)] = 1
    """Messages that one replica works on at the same time."""

    def __post_init__(self) -> None:
        _ = self.target_seconds

    @property
    def target_seconds(self) -> float:
        return read_duration(self.target, "target", TARGET)


class ResponseTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A second signal beside the backlog: response times that were measured."""

    target: TargetTime
    """The longest response time that is good enough."""
    query: QuerySpecification
    """A query that answers with seconds, such as a quantile over the last minute."""

    def __post_init__(self) -> None:
        _ = self.target_seconds

    @property
    def target_seconds(self) -> float:
        return read_duration(self.target, "target", TARGET)


class ScalerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """How a workload is sized: everything but which workload it is."""

    mode: Literal["act", "observe"] = "act"
    """`observe` decides and reports, and changes nothing."""
    replicas: Replicas
    """The limits of the number of replicas."""
    backlog: Backlog
    """The queue in which work waits, and how long it may wait."""
    response_time: ResponseTime | None = None
    """A second signal beside the backlog: response times that were measured."""
    scale_down_threshold: Annotated[str, _WRITTEN, THRESHOLD] | None = None
    """Idle for that long: down to `replicas.min`, and the GPUs are free. `auto` learns the time from the
    gaps between messages. Absent: at least one replica stays.
    """
    scale_down_threshold_when_others_wait: Annotated[str, _WRITTEN, WHEN_WAITED] | None = None
    """The same while a pod waits in line that could start with the GPUs that are idle here. Not longer than
    scaleDownThreshold. Absent: the shorter of scaleDownThreshold and 1m.
    """

    def __post_init__(self) -> None:
        threshold, waited = self.threshold_seconds, self.threshold_when_others_wait_seconds
        if threshold is None and waited is not None:
            raise BadInput(
                "scaleDownThresholdWhenOthersWait: it needs scaleDownThreshold, the time if nobody waits"
            )
        if threshold is not None and threshold != AUTO and waited is not None and waited > threshold:
            raise BadInput(
                f"scaleDownThresholdWhenOthersWait: {self.scale_down_threshold_when_others_wait} is longer "
                f"than scaleDownThreshold, which is {self.scale_down_threshold}: give a shorter time, or none"
            )

    @property
    def threshold_seconds(self) -> float | Literal["auto"] | None:
        text = self.scale_down_threshold
        return None if text is None else read_threshold(text, "scaleDownThreshold")

    @property
    def threshold_when_others_wait_seconds(self) -> float | None:
        text, field = self.scale_down_threshold_when_others_wait, "scaleDownThresholdWhenOthersWait"
        if text is None:
            return None
        if text == AUTO:
            raise BadInput(f"{field}: {AUTO} is for scaleDownThreshold only: give a duration, such as 1m")
        return read_duration(text, field, WHEN_WAITED)

    def policy(self, poll: float = 5.0) -> ScalingPolicy:
        """Returns what a decision needs of it; `poll` is the time between two decisions, in seconds."""
        waited = self.threshold_when_others_wait_seconds
        processing, response = self.backlog.processing_time, self.response_time
        return ScalingPolicy(
            target=self.backlog.target_seconds,
            minimum=self.replicas.min,
            maximum=self.replicas.max,
            service=processing.seconds if processing is not None else None,
            concurrency=self.backlog.concurrency,
            poll=poll,
            idle=IdlePolicy(self.threshold_seconds, WHEN_OTHERS_WAIT if waited is None else waited),
            response_target=response.target_seconds if response is not None else None,
        )


class GpuScalerSpec(ScalerSpec, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Sizes a workload from its backlog, and releases its GPUs when it idles."""

    target: Target
    """The workload whose replicas are changed. It cannot be replaced: what was learned is about this one."""
