"""Reads logs of `nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_memory
--format=csv`.

With or without units and header, and as `-l 15` repeats it. The workload is the program's name: nothing
else of a process outlives it. Each pid is an instance. Columns may be in another order if there is a
header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cotenant.advice.gathered import Gathered, Progress, Rejections
from cotenant.advice.moments import AUTO, parse_moment
from cotenant.advice.text_lines import Block
from cotenant.core.errors import BadInput
from cotenant.core.rightsizing.collecting import Collector
from cotenant.core.rightsizing.groups import Owner, pooled
from cotenant.core.rightsizing.history import Track

FIELD = "from-csv"
MIB = float(1 << 20)
ORDER = ("timestamp", "gpu_uuid", "pid", "process_name", "used_memory")
FORM = ",".join(ORDER)
_ALSO = {"name": "process_name", "used_gpu_memory": "used_memory"}
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-/]+")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?: ?MiB)?")
_UNKNOWN = re.compile(r"\[.*\]|N/A", re.IGNORECASE)
_NO_NAME = re.compile(
    r"-|N/A|\[(?:N/A|Not Found|Not Supported|Insufficient Permissions|Unknown Error)\]", re.IGNORECASE
)
MOST_MIB = 1e9
MOST_PROCESSES = 50_000
_NOTE = (
    "each process is an instance of its program: if several of them work together in one container, ask for "
    "the sum"
)


@dataclass(frozen=True, slots=True)
class _Columns:
    width: int
    time: int
    gpu: int
    pid: int
    name: int
    size: int


def is_log(line: str) -> bool:
    """Whether a file that begins with this line is such a log."""
    fields = _fields(line)
    if _header(fields) is not None:
        return True
    return len(fields) >= len(ORDER) and _UUID.fullmatch(fields[1]) is not None and fields[2].isdecimal()


def hint(line: str) -> str:
    """Says which query is needed, if this line is the header of another one."""
    names = {each.lower().partition(" [")[0] for each in _fields(line)}
    if not names & {"pid", "process_name", "used_gpu_memory", "memory.used"}:
        return ""
    return f"; of nvidia-smi, a log of --query-compute-apps={FORM} is needed"


def read_log(
    pieces: Iterable[Block], path: str, unit: str = AUTO, progress: Progress | None = None
) -> Gathered:
    """Reads a whole log, of one machine or of several one after the other; `path` is for messages."""
    columns = _Columns(len(ORDER), 0, 1, 2, 3, 4)
    collector: Collector[tuple[str, str, str]] = Collector()
    rejections, samples = Rejections(), 0
    for block in pieces:
        for number, line in enumerate(block.text.split("\n"), block.first):
            if not line.strip():
                continue
            fields = _fields(line)
            header = _header(fields)
            if header is not None:  # once, or again wherever the log was continued
                columns = header
                continue
            sample = _sample(_joined(fields, columns), columns, unit)
            if isinstance(sample, str):
                rejections.add(sample, number)
                continue
            key, at, size = sample
            collector.add(key, at, size)
            samples += 1
        if len(collector) > MOST_PROCESSES:
            raise BadInput(f"{FIELD}: more than {MOST_PROCESSES} processes in {path}: use a part of it")
        if progress is not None:
            progress(0.0, f"{samples:,} rows of {path}")
    found, dropped = collector.tracks()
    if dropped:
        rejections.add("timestamp: more than 400 days from all others (5-minute peaks)", None, dropped)
    if not found:
        reasons = "; ".join(map(str, rejections.all())) or "it has a header and nothing else"
        raise BadInput(f"{FIELD}: no row of {path} can be used: {reasons}. The columns are {FORM}")
    tracks: dict[Owner, list[Track]] = {}
    for (name, pid, gpu), track in found.items():
        tracks.setdefault(Owner(name), []).append(replace(track, instance=pid, gpu=gpu))
    return Gathered(
        tuple(pooled(tracks)),
        collector.step,
        path,
        starts_are_seen=True,
        samples=samples,
        rejected=rejections.all(),
        notes=(_NOTE,),
    )


def _fields(line: str) -> list[str]:
    return [each.strip() for each in line.split(",")]


def _joined(fields: list[str], columns: _Columns) -> list[str]:
    """Puts a process's name together again that has commas: nothing else has."""
    end = columns.name + 1 + len(fields) - columns.width
    if end <= columns.name + 1:
        return fields
    return [*fields[: columns.name], ",".join(fields[columns.name : end]), *fields[end:]]


def _header(fields: Sequence[str]) -> _Columns | None:
    names = [each.lower().partition(" [")[0].strip() for each in fields]
    names = [_ALSO.get(each, each) for each in names]
    if not all(each in names for each in ORDER):
        return None
    return _Columns(len(names), *(names.index(each) for each in ORDER))


def _sample(
    fields: Sequence[str], columns: _Columns, unit: str
) -> tuple[tuple[str, str, str], float, float] | str:
    """Returns key, time and bytes, or why the row cannot be used."""
    if len(fields) != columns.width:
        return f"not {columns.width} fields"
    size = _SIZE.fullmatch(fields[columns.size])
    if size is None:
        if _UNKNOWN.fullmatch(fields[columns.size]):
            return "used_memory: the driver did not report it"
        return "used_memory: not a number of MiB"
    if float(size[1]) > MOST_MIB:
        return "used_memory: more than any GPU has"
    try:
        at = parse_moment(fields[columns.time], unit)
    except ValueError:
        return "timestamp: not a time"
    name, pid = fields[columns.name], fields[columns.pid]
    if not pid.isdecimal() or not name:
        return "pid or process_name: is missing"
    if _NO_NAME.fullmatch(name):  # in another pid namespace: such processes have nothing in common
        return "process_name: not known where nvidia-smi ran: run it on the host, as root"
    program = name.replace("\\", "/").rstrip("/").rpartition("/")[2] or name
    return (program[:256], pid[:20], fields[columns.gpu][:64]), at, float(size[1]) * MIB
