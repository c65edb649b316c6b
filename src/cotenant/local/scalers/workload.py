"""Declares a workload of `cotenant up`: the fields of a GpuScaler, and a command in place of the target.

The docstring below a field explains it, also in docs/up.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cotenant.core.demand import PLACEMENTS, Demand
from cotenant.core.errors import BadInput
from cotenant.core.units import check_unit, parse_memory
from cotenant.scaling.durations import Span, read_duration
from cotenant.scaling.specification import ScalerSpec

READY_AFTER = 60.0
"""Seconds after which a replica without `ready` counts as ready even if it has not used its GPU."""
GRACE = Span(0.0, 86400.0)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OF_DEMAND = {"gpu-memory": "gpuMemory", "gpu-compute": "gpuCompute", "gpu-model": "gpuModel"}

Duration = Annotated[str, Meta(min_length=1, max_length=64, examples=["5s", "800ms", "1h30m"])]
Words = Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """When a replica has loaded: exactly one of the fields."""

    command: Words | None = None
    """A command that exits with 0 once the replica can work. It is called once a second, for at most 5 s,
    with the replica's environment; COTENANT_REPLICA is the replica's number.
    """
    after: Duration | None = None
    """A time from its start, such as 20s."""

    def __post_init__(self) -> None:
        if (self.command is None) == (self.after is None):
            raise BadInput(
                "give either command or after; leave ready out to wait for its first use of the GPU"
            )
        _check_words("command", self.command or ())
        _ = self.seconds

    @property
    def seconds(self) -> float | None:
        return None if self.after is None else read_duration(self.after, "after")


class Workload(ScalerSpec, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A command that runs in as many replicas as its queue needs."""

    command: Words
    """The program and its arguments. No shell reads it: write [sh, -c, "..."] for one."""
    environment: Annotated[dict[str, str], Meta(max_length=1000)] = msgspec.field(default_factory=dict)
    """Variables for the command, added to those of `cotenant up`. COTENANT_REPLICA is its number."""
    working_directory: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    """Where the command runs. Absent: the folder of the file."""
    gpu_memory: Annotated[str, Meta(min_length=1, max_length=64, examples=["4Gi", "50%"])] | None = None
    """GPU memory of each replica. One of gpuMemory and whole is needed."""
    gpus: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Over how many GPUs that memory is split. 1 if absent."""
    whole: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Whole GPUs of each replica."""
    gpu_compute: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Percent of the GPU's compute; enforced where MPS runs."""
    gpu_model: tuple[str, ...] = ()
    """Only on GPUs of these models."""
    gpu: tuple[str, ...] = ()
    """Only on these GPUs: index, UUID or the beginning of it."""
    placement: Literal["frag", "binpack", "spread"] = "frag"
    """On which GPU, where several have room."""
    enforce: Literal["observe", "warn", "enforce"] = "enforce"
    """What happens to allocations beyond the memory, as in `cotenant run`."""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """Among your own waiting commands: the higher is first."""
    ready: Ready | None = None
    """When a replica has loaded. Absent: at its first use of the GPU, and after a minute in any case."""
    termination_grace_period: Duration = "30s"
    """How long a replica may finish its message between SIGTERM and SIGKILL."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise BadInput(
                    f"environment: {name[:80]!a} is not the name of a variable, such as MODEL_NAME"
                )
        for field, words in (("command", self.command), ("environment", self.environment.values())):
            _check_words(field, words)
        if not self.command[0]:
            raise BadInput("command: the program is an empty text: name it, as in [python, worker.py]")
        _ = self.grace_seconds, self.demand

    @property
    def grace_seconds(self) -> float:
        return read_duration(self.termination_grace_period, "terminationGracePeriod", GRACE)

    @property
    def demand(self) -> Demand:
        """What each replica asks for."""
        if self.gpu_memory is None and self.whole is None:
            raise BadInput("gpuMemory: say what each replica needs: gpuMemory: 4Gi, or whole: 1")
        if self.gpu_memory is not None and self.whole is not None:
            raise BadInput("whole: a whole GPU brings all its memory: leave out either whole or gpuMemory")
        if self.whole is not None and self.gpus is not None:
            raise BadInput("gpus: it splits gpuMemory: leave it out, `whole` says how many GPUs")
        if self.whole is not None and self.gpu_compute is not None:
            raise BadInput("gpuCompute: a whole GPU brings all its compute: leave it out")
        if self.gpu_memory is not None:
            check_unit(self.gpu_memory, "gpuMemory")
        try:
            return Demand(
                memory=None if self.gpu_memory is None else parse_memory(self.gpu_memory, "gpuMemory"),
                gpus=self.gpus or 1,
                whole=self.whole or 0,
                compute=self.gpu_compute,
                models=self.gpu_model,
                uuids=self.gpu,
                placement=self.placement,
            )
        except BadInput as error:
            field, colon, rest = str(error).partition(":")
            raise BadInput(f"{_OF_DEMAND.get(field, field)}{colon}{rest}") from None

    @property
    def template(self) -> str:
        """A digest of all that a running replica cannot change."""
        fields = (
            self.command,
            sorted(self.environment.items()),
            self.working_directory,
            self.gpu_memory,
            self.gpus,
            self.whole,
            self.gpu_compute,
            self.gpu_model,
            self.gpu,
            self.enforce,
        )
        return hashlib.sha256(msgspec.json.encode(fields)).hexdigest()[:16]

    def run_options(self) -> list[str]:
        """Renders the demand as options of `cotenant run`."""
        given: list[tuple[str, object]] = [
            ("--gpu-memory", self.gpu_memory),
            ("--gpus", self.gpus),
            ("--whole", self.whole),
            ("--gpu-compute", self.gpu_compute),
            ("--gpu-model", ",".join(self.gpu_model) or None),
            *(("--gpu", each) for each in self.gpu),
            ("--placement", self.placement if self.placement != PLACEMENTS[0] else None),
            ("--enforce", self.enforce),
            ("--priority", self.priority),
        ]
        return [word for name, value in given if value is not None for word in (f"{name}={value}",)]


def _check_words(field: str, words: Iterable[str]) -> None:
    for word in words:
        if "\0" in word:
            raise BadInput(f"{field}: a NUL character is in it, which no process can be given")
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            raise BadInput(f"{field}: {word[:80]!a} has half of a character, which no process can be given")
