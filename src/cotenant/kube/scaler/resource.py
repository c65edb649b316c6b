"""Defines the GpuScaler as the controller reads and writes it: `spec`, and a `status` that forgets nothing.

What a decision needs to remember is in the status, so that a restart, an upgrade or another leader goes on
where the last one was. A spec stays plain JSON until `read_spec`: the list of all GpuScalers must not fail
because one of them was written for another version.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta as Bounds

from cotenant.kube.api import resources
from cotenant.kube.api.objects import Meta, Moment
from cotenant.scaling.reading import read_specification
from cotenant.scaling.specification import GpuScalerSpec

READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"

LONGEST_MESSAGE = 4096
"""Characters of a sentence in the status; longer ones are cut before they are written."""

Count = Annotated[int, Bounds(ge=0, le=2**31 - 1)]
Word = Annotated[str, Bounds(max_length=64)]
Sentence = Annotated[str, Bounds(max_length=LONGEST_MESSAGE)]


class ScalerCondition(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A condition as kstatus and `kubectl wait` read it."""

    type: Annotated[str, Bounds(min_length=1, max_length=316)] = ""
    """Ready, Reconciling or Stalled; others inform."""
    status: Annotated[str, Bounds(min_length=1, max_length=7)] = ""
    """True, False or Unknown."""
    reason: Annotated[str, Bounds(max_length=1024)] = ""
    """The cause in one word."""
    message: Sentence = ""
    """The cause in one sentence, with its figures and the remedy."""
    observed_generation: Annotated[int, Bounds(ge=0)] = 0
    """The generation of the spec that it is about."""
    last_transition_time: Moment | None = None
    """When the status of this condition last changed."""


class GpuScalerStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """What was decided, and what the next decision must know."""

    observed_generation: Annotated[int, Bounds(ge=0)] = 0
    """The generation of the spec that was last decided on."""
    replicas: Count | None = None
    """Replicas that the target is set to."""
    desired: Count | None = None
    """Replicas that were decided on."""
    backlog: Word = ""
    """How long a message that arrives now would wait, such as 2.4s."""
    state: Word = ""
    """One of Active, ScalingUp, ScalingDown, WaitingForGpu, AtMaximum, Idle, Waking, NoMetric, MetricStuck,
    Stalled and NotStarting.
    """
    since: Moment | None = None
    """Since when it is in this state."""
    message: Sentence = ""
    """The last decision in one sentence, with its figures."""
    conditions: Annotated[tuple[ScalerCondition, ...], Bounds(max_length=16)] = ()
    """Ready, Reconciling and Stalled, as kstatus reads them."""
    memory: dict[str, Any] = {}
    """What the next decision must know: last activity, learned processing time, the recent load. It belongs
    to the controller.
    """


class GpuScaler(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One GpuScaler as the API server has it."""

    metadata: Meta = Meta()
    spec: dict[str, Any] = {}
    status: GpuScalerStatus = GpuScalerStatus()


GPU_SCALERS = resources.GPU_SCALERS.read_as(GpuScaler)


def read_spec(scaler: GpuScaler) -> GpuScalerSpec:
    """Returns the spec; BadInput with a line for each fault, where the API server let one pass."""
    return read_specification(GpuScalerSpec, scaler.spec)
