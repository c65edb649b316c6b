"""Reads the file of `cotenant up`. Errors name the file, the workload, the field and the remedy."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cotenant.core.errors import BadInput
from cotenant.local.scalers.workload import Workload
from cotenant.scaling.durations import Span, read_duration
from cotenant.scaling.reading import read_specification

LARGEST = 1 << 20
"""Bytes of the file."""
MOST_VALUES = 100_000
"""Of the file, aliases counted as often as they occur."""
DEEPEST = 30
POLL = "2s"
POLLS = Span(0.1, 300.0)
EXAMPLE = "workloads: {room-scene: {command: [python, worker.py], gpuMemory: 4Gi, ...}}"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?", re.ASCII)
_FIELDS = ("workloads", "poll")
RESERVED = "declared"
"""The record of a workload is NAME.json, and declared.json is the list of all."""


@dataclass(frozen=True)
class Declared:
    """One workload as a file declares it."""

    name: str
    file: Path
    poll: float
    """Seconds between two decisions."""
    spec: Workload

    def to_json(self) -> dict[str, Any]:
        spec = msgspec.to_builtins(self.spec)
        return {"name": self.name, "file": str(self.file), "poll": self.poll, "spec": spec}

    @classmethod
    def from_json(cls, data: Any) -> Declared:
        """Reads what `to_json` wrote; BadInput if this version of Cotenant no longer accepts it."""
        name, file = str(data["name"]), Path(data["file"])
        spec = read_specification(Workload, data["spec"], f"{file}: workloads.{name}")
        return cls(name, file, float(data["poll"]), spec)


def read_file(path: Path) -> list[Declared]:
    """Returns the workloads of a file in its order; BadInput has a line for each fault."""
    data = _load(path)
    if not isinstance(data, dict) or not data:
        raise BadInput(f"{path}: it has no workloads: write them like {EXAMPLE}")
    for field in data:
        if field not in _FIELDS:
            hint = "indent it below `workloads:`" if isinstance(data[field], dict) else "remove it"
            raise BadInput(
                f"{path}: {_show(field)}: there is no such field; there are workloads, poll: {hint}"
            )
    poll = _poll(path, data.get("poll", POLL))
    workloads = data.get("workloads")
    if not isinstance(workloads, dict) or not workloads:
        raise BadInput(f"{path}: workloads: it names no workload: write them like {EXAMPLE}")
    problems, found = list[str](), list[Declared]()
    for name, spec in workloads.items():
        if name == RESERVED:
            problems.append(
                f"{path}: workloads.{name}: a file of Cotenant has this name: take another, such as my-{name}"
            )
            continue
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(
                f"{path}: workloads.{_show(name)}: this is not the name of a workload: take up to 50 small "
                "letters, digits and '-', such as room-scene"
            )
            continue
        try:
            read = read_specification(Workload, spec, f"{path}: workloads.{name}")
        except BadInput as error:
            problems += str(error).splitlines()
        else:
            found.append(Declared(name, Path(os.path.abspath(path)), poll, read))
    if problems:
        raise BadInput("\n".join(problems))
    return found


def _poll(path: Path, text: object) -> float:
    if not isinstance(text, str):
        raise BadInput(f"{path}: poll: {_show(text)} is not a duration: write it like 2s")
    return read_duration(text, f"{path}: poll", POLLS)


def _load(path: Path) -> object:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise BadInput(
            f"{path}: it cannot be read: {error.strerror}: `cotenant up --help` has an example of it"
        ) from None
    if len(content) > LARGEST:
        raise BadInput(f"{path}: it is larger than {LARGEST >> 20} MiB: is it the right file?")
    try:
        data = yaml.load(content, _Loader)  # noqa: S506 -- a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise BadInput(f"{path}: this is no YAML{where}: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:  # of a bad tag
        raise BadInput(
            f"{path}: this is no YAML: {str(error).splitlines()[0] or 'it is nested too deeply'}"
        ) from None
    if _count(data) > MOST_VALUES:
        raise BadInput(f"{path}: it has more than {MOST_VALUES} values, or is nested deeper than {DEEPEST}")
    return data


class _Loader(yaml.SafeLoader):
    """Refuses a name that occurs twice: YAML's own rule, which PyYAML does not check."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"{key.value[:80]!a} is there twice: remove one", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _count(value: object, depth: int = 0, most: int = MOST_VALUES) -> int:
    """Counts the values; stops above `most`, so that aliases of aliases cost nothing."""
    if depth > DEEPEST:
        return most + 1
    total = 1
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        total += _count(each, depth + 1, most - total)
        if total > most:
            break
    return total


def _show(value: object) -> str:
    return ascii(value)[:80]
