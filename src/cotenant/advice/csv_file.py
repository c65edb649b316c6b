"""Reads samples from a CSV file with the columns timestamp, workload, container and bytes.

Further columns are used if they are there: `version`, `pod`, `gpu`, `namespace` and `limit`. Without a header
the four columns are taken in this order. Rows may be in any order, and repeat. A row that cannot be used is
counted and left out.

Most blocks of a file have nothing odd in them: they are read column by column, which is five times as fast as
row by row. A block with anything else is read again by rows.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cotenant.advice import csv_parts, nvidia_smi
from cotenant.advice.gathered import OVERLAP, Gathered, Progress, Rejections
from cotenant.advice.moments import AUTO, MOST_SECONDS, UNITS, parse_moment, unit_of
from cotenant.advice.text_lines import Block, blocks
from cotenant.core.errors import BadInput
from cotenant.core.rightsizing.collecting import Collector
from cotenant.core.rightsizing.groups import Group, Meaning, Owner, by_column, newest_versions, pooled
from cotenant.core.rightsizing.history import Track
from cotenant.core.units import parse_bytes

FIELD = "from-csv"
NEEDED = ("timestamp", "workload", "container", "bytes")
KEYS = ("namespace", "workload", "version", "container", "pod", "gpu")
LIMIT = "limit"
FORM = "timestamp,workload,container,bytes"
DELIMITERS = (",", ";", "\t")
LONGEST_NAME = 512
MOST_SERIES = 50_000
MOST_BYTES = float(1 << 50)
"""More than any GPU has: a larger figure is a mistake."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a file's columns are."""

    delimiter: str
    width: int
    time: int
    size: int
    keys: tuple[int, ...]
    """Those of KEYS that are there, in that order."""
    names: tuple[str, ...]
    limit: int | None = None
    header: list[str] = field(default_factory=list)
    """The first line, if it is one."""


def read_csv(
    path: str, meaning: Meaning = "auto", unit: str = AUTO, progress: Progress | None = None
) -> Gathered:
    """Reads a whole file, or standard input for `-`."""
    reader: Reader | None = None
    pieces = blocks(path, FIELD)
    for piece in pieces:
        block = piece
        if reader is None:
            skipped = len(piece.text) - len(piece.text.lstrip("\n"))
            text = piece.text[skipped:]
            if not text.strip():
                continue
            first, _, rest = text.partition("\n")
            if nvidia_smi.is_log(first):
                return nvidia_smi.read_log(itertools.chain((piece,), pieces), path, unit, progress)
            layout, has_header = _layout(path, first)
            reader = Reader(layout, unit)
            if (size := csv_parts.large(path)) is not None:
                csv_parts.read_parts(reader, path, size, skip_first=has_header, progress=progress)
                break
            number = piece.first + skipped
            block = Block(number + 1, rest) if has_header else Block(number, text)
        reader.read(block)
        if progress is not None:
            progress(0.0, f"{reader.samples:,} rows of {path}")
    if reader is None:
        raise BadInput(f"{FIELD}: {path} is empty: its columns are {FORM}")
    return reader.gathered(path, meaning)


def _layout(path: str, first: str) -> tuple[Layout, bool]:
    """Finds the columns by the file's first line, and whether that is a header."""
    for delimiter in DELIMITERS:
        fields = _split(first, delimiter)
        columns = [each.strip().lower() for each in fields]
        if all(each in columns for each in NEEDED):
            found = {name: columns.index(name) for name in (*NEEDED, *KEYS, LIMIT) if name in columns}
            names = tuple(each for each in KEYS if each in found)
            keys = tuple(found[each] for each in names)
            time, size = found["timestamp"], found["bytes"]
            head = [each.strip() for each in fields]
            return Layout(delimiter, len(columns), time, size, keys, names, found.get(LIMIT), head), True
    for delimiter in DELIMITERS:
        fields = _split(first, delimiter)
        if len(fields) == len(NEEDED) and _is_sample(fields[0], fields[3]):
            return Layout(delimiter, 4, 0, 3, (1, 2), ("workload", "container")), False
    columns = [each.strip().lower() for each in _split(first, DELIMITERS[0])]
    missing = [each for each in NEEDED if each not in columns]
    raise BadInput(
        f"{FIELD}: {path} has no column {', '.join(missing)} in its first line, {first[:80]!a}: "
        f"the columns are {FORM}, separated by commas{nvidia_smi.hint(first)}"
    )


def _is_sample(time: str, size: str) -> bool:
    try:
        parse_moment(time)
        return float(size) >= 0
    except ValueError:
        return False


def _split(line: str, delimiter: str) -> list[str]:
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    except (csv.Error, StopIteration):
        return []


class Reader:
    """Collects the samples of a file, or of a part of one."""

    def __init__(self, layout: Layout, unit: str) -> None:
        self.layout, self.unit = layout, unit
        self._collector: Collector[Key] = Collector()
        self._rejections = Rejections()
        self._limits: dict[Key, str] = {}
        self._moments: dict[str, float] = {}
        self.samples = 0

    def absorb(self, other: Reader, lines_before: int) -> None:
        """Adds what was read of a later part of the file, which has so many lines before it."""
        self._collector.absorb(other._collector)
        self._rejections.absorb(other._rejections, lines_before)
        self._limits.update(other._limits)
        self.samples += other.samples
        self._check_count()

    def read(self, block: Block) -> None:
        if not self._read_columns(block.text):
            self._read_rows(block)
        self._check_count()

    def _check_count(self) -> None:
        if len(self._collector) > MOST_SERIES:
            raise BadInput(
                f"{FIELD}: more than {MOST_SERIES} containers: is there another value of `container` in each "
                "row? Name columns that are the same for all samples of a container"
            )

    def _read_columns(self, text: str) -> bool:
        """Reads a block that has nothing odd; False if it has, and then nothing of it was read."""
        layout, width = self.layout, self.layout.width
        delimiter = layout.delimiter
        if '"' in text or (" " in text and (f" {delimiter}" in text or f"{delimiter} " in text)):
            return False
        # Line ends stay with the first field of the next line, which shows whether all lines have the width.
        fields = text.rstrip("\n").replace("\n", f"{delimiter}\n").split(delimiter)
        if len(fields) % width:
            return False
        columns = [fields[at::width] for at in range(width)]
        rows = len(columns[0])
        if "".join(columns[0]).count("\n") != rows - 1 or text.count("\n", 0, -1) != rows - 1:
            return False
        if 0 in (*layout.keys, layout.limit):
            columns[0] = [each.removeprefix("\n") for each in columns[0]]
        try:
            sizes = list(map(float, columns[layout.size]))
            times = self._times(columns[layout.time])
        except (ValueError, OverflowError):
            return False
        # A sum of floats is finite only if all are, and NaN is not less than anything.
        if times is None or not (min(sizes) >= 0 and sum(sizes) < MOST_BYTES):
            return False
        keys = list(zip(*(columns[at] for at in layout.keys), strict=True))
        self._collector.add_many(keys, times, sizes)
        if layout.limit is not None:
            self._limits.update(zip(keys, columns[layout.limit], strict=True))
        self.samples += rows
        return True

    def _times(self, texts: Sequence[str]) -> list[float] | None:
        """Parses times; None if they are not all of one unit. Samples of many containers have the same
        times.
        """
        distinct = set(texts)
        few = len(distinct) * 4 <= len(texts)
        asked = list(distinct) if few else texts
        try:
            times = list(map(float, asked))
        except ValueError:
            return [self._moment(each) for each in texts]
        low, high = min(times), max(times)
        unit = unit_of(high) if self.unit == AUTO else self.unit
        if (self.unit == AUTO and unit != unit_of(low)) or not math.isfinite(sum(times)):
            return None
        if unit != "s":
            times = [each / UNITS[unit] for each in times]
        if max(abs(low), abs(high)) / UNITS[unit] > MOST_SECONDS:
            return None
        return list(map(dict(zip(asked, times, strict=True)).__getitem__, texts)) if few else times

    def _moment(self, text: str) -> float:
        """Parses a time, or remembers it: samples of many containers have the same."""
        known = self._moments.get(text)
        if known is None:
            if len(self._moments) > 100_000:
                self._moments.clear()
            known = self._moments[text] = parse_moment(text, self.unit)
        return known

    def _read_rows(self, block: Block) -> None:
        layout, reject = self.layout, self._rejections.add
        for number, line in enumerate(block.text.split("\n"), block.first):
            if not line.strip():
                continue
            fields = [each.strip() for each in _split(line, layout.delimiter)]
            if fields == layout.header:  # files that were put together
                continue
            if len(fields) != layout.width:
                reject(f"not {layout.width} fields", number)
                continue
            try:
                at = parse_moment(fields[layout.time], self.unit)
            except ValueError:
                reject("timestamp: not Unix time and not ISO 8601", number)
                continue
            try:
                size = float(fields[layout.size])
            except ValueError:
                reject("bytes: not a plain number, such as 4294967296", number)
                continue
            if not 0 <= size <= MOST_BYTES:
                reject("bytes: negative, not finite, or more than any GPU has", number)
                continue
            key = tuple(fields[each] for each in layout.keys)
            self._collector.add(key, at, size)
            if layout.limit is not None:
                self._limits[key] = fields[layout.limit]
            self.samples += 1

    def gathered(self, path: str, meaning: Meaning) -> Gathered:
        layout = self.layout
        found, dropped = self._collector.tracks()
        if dropped:
            self._rejections.add(
                "timestamp: more than 400 days from all others (5-minute peaks)", None, dropped
            )
        named = {key: dict(zip(layout.names, key, strict=True)) for key in found}
        for key, names in named.items():
            if why := _bad_name(names):
                self._rejections.add(why, None, found.pop(key).samples)
        if not found:
            reasons = "; ".join(map(str, self._rejections.all())) or "there is a header and nothing else"
            raise BadInput(f"{FIELD}: no row of {path} can be used: {reasons}. The columns are {FORM}")
        groups, past, notes = self._grouped(found, named, meaning)
        return Gathered(
            groups,
            self._collector.step,
            path,
            starts_are_seen=False,
            samples=self.samples,
            past=past,
            rejected=self._rejections.all(),
            notes=notes,
        )

    def _grouped(
        self, found: Mapping[Key, Track], named: Mapping[Key, Mapping[str, str]], meaning: Meaning
    ) -> tuple[tuple[Group, ...], tuple[Group, ...], tuple[str, ...]]:
        tracks: dict[Owner, list[Track]] = {}
        limits: dict[tuple[Owner, str], int] = {}
        for key, track in found.items():
            names = named[key]
            owner, instance = _owner(names), names.get("pod", names["container"])
            tracks.setdefault(owner, []).append(replace(track, instance=instance, gpu=names.get("gpu", "")))
            if (limit := _limit(self._limits.get(key, ""))) is not None:
                limits[owner, instance] = max(limit, limits.get((owner, instance), 0))
        if "pod" in self.layout.names:
            groups = pooled(tracks)
            taken: Mapping[str, str] = {}
        else:
            groups, taken = by_column(tracks, meaning)
        by_instance = {(owner.workload, instance): size for (owner, instance), size in limits.items()}
        known = [
            replace(
                each,
                now=max(
                    (
                        by_instance[each.owner.workload, instance]
                        for instance in each.instances
                        if (each.owner.workload, instance) in by_instance
                    ),
                    default=None,
                ),
            )
            for each in groups
        ]
        running, past = newest_versions(known, OVERLAP)
        return tuple(running), tuple(past), _notes(taken)


def _owner(names: Mapping[str, str]) -> Owner:
    workload = "/".join(filter(None, (names.get("namespace"), names["workload"])))
    return Owner(workload, names.get("version", ""), names["container"])


def _bad_name(names: Mapping[str, str]) -> str:
    for column in ("workload", "container"):
        if not names[column]:
            return f"{column}: is empty"
    for column, name in names.items():
        if len(name) > LONGEST_NAME:
            return f"{column}: longer than {LONGEST_NAME} characters"
    return ""


def _limit(text: str) -> int | None:
    if not text:
        return None
    try:
        size = float(text)
    except ValueError:
        try:
            return parse_bytes(text, LIMIT)
        except BadInput:
            return None
    return round(size) if 0 < size <= MOST_BYTES else None


def _notes(taken: Mapping[str, str]) -> tuple[str, ...]:
    """Says what the container column was taken for, where that was guessed."""
    instances = [workload for workload, meaning in taken.items() if meaning == "instance"]
    if not instances:
        return ()
    some = "all workloads" if len(instances) == len(taken) else f"{len(instances)} of {len(taken)} workloads"
    said = (
        f"the values of `container` are taken for running containers of {some}, and pooled where they are "
        "alike; --containers name takes them for names in a pod"
    )
    return (said,)
