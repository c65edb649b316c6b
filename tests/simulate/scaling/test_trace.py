"""Reading traces: the forms that are known, and what is wrong with a file."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from cotenant.core.errors import BadInput
from cotenant.simulate.scaling import trace
from cotenant.simulate.scaling.trace import read_trace


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        "timestamp,service_seconds\n100,0.5\n101.5,2\n",
        "100,0.5\n101.5,2\n",
        "service_seconds,Timestamp,model\n0.5,100,a\n2,101.5,b\n",
        '\ufeff"timestamp","service_seconds"\r\n"100","0.5"\r\n\r\n"101.5","2"\r\n',
        "timestamp,service_seconds\n101.5,2\n100,0.5\n",
        'model,timestamp,service_seconds\n"a, ""b""",100,0.5\nc, "101.5" ,2\n',
        "timestamp,service_seconds\n2023-11-16 18:15:46.6805900,0.5\n2023-11-16 18:15:48.1805900,2\n",
        "timestamp,service_seconds\n2023-11-16T18:15:46Z,0.5\n2023-11-16T19:15:47.5+01:00,2\n",
    ],
)
def test_timestamps_and_service_times(tmp_path: Path, text: str) -> None:
    read = read_trace(written(tmp_path, text))
    assert list(read.workload.arrivals) == pytest.approx([0, 1.5])
    assert list(read.workload.services) == [0.5, 2]
    assert read.timed


def test_tokens_become_work_in_proportion(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n0,374,44\n1,10,0\n"))
    assert list(read.workload.services) == pytest.approx([86.4, 6])
    assert not read.timed
    assert read.workload.scaled(0.8).mean_service == pytest.approx(0.8)


def test_timestamps_alone_are_requests_of_equal_length(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, "timestamp\n5\n7\n"))
    assert list(read.workload.scaled(0.8).services) == [0.8, 0.8]
    assert not read.timed


def test_gzip_is_read_by_its_content(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, gzip.compress(b"timestamp\n5\n7\n")))
    assert list(read.workload.arrivals) == [0, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv is empty"),
        ("timestamp\n", "has a header and no request"),
        ("a,b\n1,2\n", "line 1: no column `timestamp` in 'a, b'"),
        ("timestamp,duration\n1,2\n", "no column service_seconds"),
        ("timestamp;service_seconds\n1;2\n", "separated by commas"),
        ("timestamp\n1\nyesterday\n", "line 3, field timestamp: 'yesterday' is neither seconds nor ISO 8601"),
        ("timestamp\nnan\n", "line 2, field timestamp: nan is not a time"),
        ("timestamp\n1e300\n", "field timestamp: 1e300 is not a time"),
        ("timestamp,service_seconds\n1,2\n2\n", "line 3: 1 of 2 fields: complete or remove the line"),
        ("timestamp,service_seconds\n1,-2\n", "line 2, field service_seconds: -2 is not between 0 and 86400"),
        ("timestamp,service_seconds\n1,inf\n", "field service_seconds: inf is not between"),
        ("timestamp,service_seconds\n1,\n", "field service_seconds: '' is not a number: correct or remove"),
        ('timestamp,service_seconds\n1,"0,5"\n', "field service_seconds: '0,5' is not a number"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n0,x,44\n", "field ContextTokens: 'x' is not a number"),
        ("timestamp\n1700000000000\n1800000000000\n", "seconds, not milliseconds"),
        ("timestamp\n1700000000000\n1700000001000\n", "line 2, field timestamp: 1700000000000 is not a time"),
        ("timestamp\n0\n40000000\n", "goes over more than 366 days"),
        ("2023-11-16 18:15:46.68,374,44\n", "line 1: 3 fields and no header"),
        ("timestamp\n" + "1" * 5000 + "\n", "line 2 is longer than 4096 bytes"),
        (b"timestamp\n\xff\xfe\n", "line 2 is not UTF-8"),
        (gzip.compress(b"timestamp\n5\n7\n", mtime=0)[:-9], "is not a whole gzip file"),
        (b"\x1f\x8bno gzip", "is not a whole gzip file"),
    ],
)
def test_what_is_wrong_is_said_with_line_field_and_remedy(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    with pytest.raises(BadInput) as raised:
        read_trace(written(tmp_path, text))
    assert said in str(raised.value)
    assert str(raised.value).startswith("trace: ")
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("content", [b"timestamp\n5\n7\n", gzip.compress(b"timestamp\n5\n7\n")])
def test_a_pipe_is_read_as_a_file_is(content: bytes) -> None:
    out, into = os.pipe()
    os.write(into, content)
    os.close(into)
    try:
        assert list(read_trace(f"/dev/fd/{out}").workload.arrivals) == [0, 2]
    finally:
        os.close(out)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*: No such file"):
        read_trace(str(tmp_path / "none"))
    with pytest.raises(BadInput, match=r"cannot read .*: Is a directory"):
        read_trace(str(tmp_path))


def test_the_number_of_requests_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "LARGEST", 3)
    with pytest.raises(BadInput, match="more than 3 requests"):
        read_trace(written(tmp_path, "timestamp\n1\n2\n3\n4\n"))
