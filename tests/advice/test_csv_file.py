"""Samples in CSV files: many spellings, and much that is wrong."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.advice import csv_file, csv_parts
from cotenant.advice.csv_file import read_csv
from cotenant.advice.gathered import Gathered
from cotenant.core.errors import BadInput

GIB = 1 << 30
HEADER = "timestamp,workload,container,bytes\n"


def read(tmp_path: Path, text: str | bytes, **options: str) -> Gathered:
    path = tmp_path / "samples.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_csv(str(path), **options)  # type: ignore[arg-type]


def peaks(gathered: Gathered) -> dict[tuple[str, str], float]:
    return {
        (group.owner.workload, track.instance): track.peak
        for group in gathered.groups
        for track in group.tracks
    }


ROWS = "".join(
    f"{1.7e9 + at * 60:.0f},web,web-{pod},{GIB + at + pod}\n" for at in range(50) for pod in range(3)
)
EXPECTED = {("web", f"web-{pod}"): GIB + 49 + pod for pod in range(3)}


@pytest.mark.parametrize(
    "text",
    [
        HEADER + ROWS,
        ROWS,
        "\ufeff" + HEADER + ROWS,
        "\n\n" + HEADER + "\n" + ROWS + "\n\n",
        (HEADER + ROWS).replace("\n", "\r\n"),
        (HEADER + ROWS).replace(",", ";"),
        (HEADER + ROWS).replace(",", "\t"),
        (HEADER + ROWS).replace(",", ", "),
        "Timestamp,WORKLOAD,Container,Bytes\n" + ROWS,
        HEADER + "".join(sorted(ROWS.splitlines(keepends=True), key=lambda row: row.split(",")[3])),
        HEADER + ROWS + ROWS,
        HEADER + ROWS.replace("web,", '"web",'),
        HEADER + "".join("{}000,{},{},{}\n".format(*row.split(",")) for row in ROWS.split()),
        "bytes,container,timestamp,workload,ignored\n"
        + "".join(
            f"{row[3]},{row[2]},{row[0]},{row[1]},x\n"
            for row in map(str.split, ROWS.replace(",", " ").splitlines())
        ),
        gzip.compress((HEADER + ROWS).encode()),
        (HEADER + ROWS).encode("utf-16"),
    ],
    ids=range(16),
)
def test_one_content_in_many_spellings(tmp_path: Path, text: str | bytes) -> None:
    found = read(tmp_path, text)
    assert peaks(found) == EXPECTED
    assert found.rejected == ()
    assert found.samples in (150, 300)


def test_iso_times_and_unix_times_may_be_mixed(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        HEADER
        + "1700000000,w,c,1\n2023-11-14T22:18:20Z,w,c,2\n1700000600000,w,c,3\n2023/11/14 22:28:20.000,w,c,4\n",
    )
    (group,) = found.groups
    assert list(group.tracks[0].peaks) == [1, 2, 3, 4]
    assert found.rejected == ()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("1700000000,w,c,nan", "bytes: negative, not finite, or more than any GPU has"),
        ("1700000000,w,c,-1", "bytes: negative, not finite, or more than any GPU has"),
        ("1700000000,w,c,inf", "bytes: negative, not finite, or more than any GPU has"),
        ("1700000000,w,c,1e30", "bytes: negative, not finite, or more than any GPU has"),
        ("1700000000,w,c,", "bytes: not a plain number, such as 4294967296"),
        ("1700000000,w,c,4GiB", "bytes: not a plain number, such as 4294967296"),
        ("yesterday,w,c,1", "timestamp: not Unix time and not ISO 8601"),
        ("nan,w,c,1", "timestamp: not Unix time and not ISO 8601"),
        ("1e300,w,c,1", "timestamp: not Unix time and not ISO 8601"),
        ("1700000000,w,c", "not 4 fields"),
        ("1700000000,w,c,1,2", "not 4 fields"),
        ("1700000000,,c,1", "workload: is empty"),
        ("1700000000,w,,1", "container: is empty"),
        (f"1700000000,{'w' * 600},c,1", "workload: longer than 512 characters"),
        ('1700000000,"w,c,1', "not 4 fields"),
        ("\0\0\0", "not 4 fields"),
        ("<<<<<<< HEAD", "not 4 fields"),
    ],
)
def test_a_bad_row_is_counted_and_the_others_are_used(tmp_path: Path, row: str, why: str) -> None:
    found = read(tmp_path, HEADER + ROWS[:200].rpartition("\n")[0] + "\n" + row + "\n" + ROWS)
    assert peaks(found) == EXPECTED
    (rejected,) = found.rejected
    assert (rejected.why, rejected.rows) == (why, 1)
    assert rejected.line in (7, 8, None)
    with pytest.raises(BadInput, match=r"no row of .* can be used"):
        read(tmp_path, HEADER + row + "\n")


def test_the_line_of_the_first_bad_row_is_named(tmp_path: Path) -> None:
    found = read(tmp_path, HEADER + "1700000000,w,c,1\nx,w,c,1\n\ny,w,c,1\n")
    assert [str(each) for each in found.rejected] == [
        "timestamp: not Unix time and not ISO 8601: 2 rows, the first in line 3"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty: its columns are timestamp,workload,container,bytes"),
        ("\n\n\n", "is empty"),
        (HEADER, "there is a header and nothing else"),
        ("time,app,mem\n1,2,3\n", "has no column timestamp, workload, container, bytes in its first line"),
        ("timestamp,workload,bytes\n1,w,2\n", "has no column container"),
        ("\x7fELF\x01\x01\x01\n", "has no column"),
        ('"timestamp,workload\n', "has no column"),
        (HEADER + "a,b,c,d\n" * 10, "no row of .* can be used: timestamp: .* 10 rows, the first in line 2"),
    ],
)
def test_a_file_without_samples_is_refused_with_what_it_should_have(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        read(tmp_path, text)


def test_names_may_have_anything(tmp_path: Path) -> None:
    strange = ["Ünï cödé", "\x1b[31mred", "a b", "名前", "=cmd()", "'", "x" * 512]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["timestamp", "workload", "container", "bytes"])
    for name in strange:
        writer.writerow([1700000000, name, "c,1", 5])
    found = read(tmp_path, text.getvalue())
    assert {group.owner.workload for group in found.groups} == set(strange)
    assert {group.owner.container for group in found.groups} == {"c,1"}


def test_further_columns_say_version_pod_gpu_namespace_and_limit(tmp_path: Path) -> None:
    rows = "".join(
        f"{1.7e9 + at * 300:.0f},team,web,{version},server,web-{pod},GPU-{gpu},{GIB + at},{limit}\n"
        for version, limit, times in (("v1", "8Gi", range(100)), ("v2", 4 * GIB, range(100, 200)))
        for at in times
        for pod in range(2)
        for gpu in range(2)
    )
    found = read(tmp_path, "timestamp,namespace,workload,version,container,pod,gpu,bytes,limit\n" + rows)
    (group,) = found.groups
    assert (group.owner.workload, group.owner.version, group.owner.container) == ("team/web", "v2", "server")
    assert group.instances == ("web-0", "web-1")
    assert group.gpus == 2
    assert group.now == 4 * GIB
    assert group.former == GIB + 99
    assert [each.owner.version for each in found.past] == ["v1"]


def test_the_container_column_is_guessed_and_can_be_said(tmp_path: Path) -> None:
    assert len(read(tmp_path, HEADER + ROWS).groups) == 1
    assert "running containers of all workloads" in read(tmp_path, HEADER + ROWS).notes[0]
    assert len(read(tmp_path, HEADER + ROWS, meaning="name").groups) == 3
    assert read(tmp_path, HEADER + ROWS, meaning="name").notes == ()


def test_the_unit_of_times_can_be_said(tmp_path: Path) -> None:
    rows = HEADER + "".join(f"{at * 60_000},w,c,{at}\n" for at in range(1000))
    (group,) = read(tmp_path, rows, unit="ms").groups
    assert group.tracks[0].end == 200


def test_a_value_of_its_own_in_each_row_is_no_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "MOST_SERIES", 100)
    with pytest.raises(BadInput, match="more than 100 containers"):
        read(tmp_path, HEADER + "".join(f"1700000000,w,{at},1\n" for at in range(200)))


def test_files_that_were_put_together_repeat_their_header(tmp_path: Path) -> None:
    found = read(tmp_path, HEADER + ROWS + HEADER + ROWS)
    assert found.rejected == ()
    assert peaks(found) == EXPECTED


def test_one_sample_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, HEADER + "0,w,c,0\n")
    assert peaks(found) == {("w", "c"): 0}


FIELD = st.one_of(
    st.sampled_from(
        ["", "w", "web-1", "1700000000", "nan", "-5", "1e30", '"', "2026-01-01", " ", "\x00", "é"]
    ),
    st.text(max_size=8).filter(lambda text: "\n" not in text and "\r" not in text),
)


@settings(max_examples=150)
@given(st.lists(st.lists(FIELD, min_size=0, max_size=6).map(",".join), max_size=12), st.integers(1, 64))
def test_whatever_a_file_has_reading_by_columns_and_by_rows_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], block: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "samples.csv"
    path.write_text(HEADER + "1700000000,w,c,1\n" + "\n".join(rows), encoding="utf-8", newline="")
    found = []
    for by_columns in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cotenant.advice.text_lines.BLOCK", block * 16)
            if not by_columns:
                patch.setattr(csv_file.Reader, "_read_columns", lambda *_: False)
            read = read_csv(str(path), "name")
        counted = {each.why: each.rows for each in read.rejected}
        found.append((peaks(read), read.samples, counted))
    assert found[0] == found[1]


@pytest.mark.parametrize("header", [HEADER, "\ufeff" + HEADER, ""])
def test_a_large_file_is_read_in_parts_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    text = header + ROWS * 20 + "bad row\n" + ROWS + "1700000000,w,c,-3\n"
    whole = read(tmp_path, text)
    monkeypatch.setattr(csv_parts, "LARGE", 1000)
    monkeypatch.setattr(csv_parts, "_processes", lambda: 3)
    absorbed = []
    real = csv_file.Reader.absorb
    monkeypatch.setattr(
        csv_file.Reader, "absorb", lambda self, *rest: (absorbed.append(1), real(self, *rest))
    )
    parts = read(tmp_path, text)
    assert len(absorbed) == 12
    assert peaks(parts) == peaks(whole)
    assert (parts.samples, parts.rejected) == (whole.samples, whole.rejected)
    assert [each.tracks[0].buckets for each in parts.groups] == [
        each.tracks[0].buckets for each in whole.groups
    ]


def test_gzip_pipes_and_small_files_are_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_parts, "LARGE", 10)
    monkeypatch.setattr(csv_parts, "_processes", lambda: 2)
    for number, data in enumerate((gzip.compress(b"x" * 99), "a\n".encode("utf-16") * 9, b"no line end" * 9)):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert csv_parts.large(str(path)) is None
    assert csv_parts.large("-") is None
    assert csv_parts.large("/nowhere") is None
    (tmp_path / "plain").write_bytes(b"a,b\n" * 9)
    assert csv_parts.large(str(tmp_path / "plain")) == 36
