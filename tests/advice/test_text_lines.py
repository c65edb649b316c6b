"""Files are read in blocks of whole lines, whatever wrote them."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.advice import text_lines
from cotenant.advice.text_lines import LONGEST_LINE, blocks, part
from cotenant.core.errors import BadInput


def lines(path: Path) -> list[str]:
    found = list(blocks(str(path), "from-csv"))
    first = 1
    for each in found:
        assert each.first == first
        first += each.text.count("\n")
    return "".join(each.text for each in found).splitlines()


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 16])
def test_line_ends_encodings_and_block_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, encoding: str, block: int
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK", max(block, 2) if encoding == "utf-16" else block)
    path = tmp_path / "file"
    path.write_bytes((ending.join(["a,b", "ünïcode,名前", "", "last"])).encode(encoding))
    assert [each for each in lines(path) if each] == ["a,b", "ünïcode,名前", "last"]


def test_gzip_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(b"a\nb\n"))
    assert lines(path) == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"a\nb\n" * 100)[:-9], "is not a whole gzip file"),
        (b"\x1f\x8b damaged", "is not a whole gzip file"),
        (b"x" * (LONGEST_LINE + (1 << 17)), "line 1 is longer than"),
    ],
)
def test_what_is_no_text_file_is_said_to_be_none(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=said):
        list(blocks(str(path), "from-csv"))


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/", "\0"])
def test_what_cannot_be_opened_names_the_option_and_the_reason(path: str) -> None:
    with pytest.raises(BadInput, match="from-csv: cannot read"):
        list(blocks(path, "from-csv"))


def test_bytes_that_are_no_text_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xff\n\xfe\n")
    assert lines(path) == ["\\xff", "\\xfe"]


@given(st.lists(st.text("ab,\u00e9", max_size=12), min_size=1, max_size=40), st.integers(1, 9), st.booleans())
def test_parts_of_a_file_are_its_lines_once_each(
    tmp_path_factory: pytest.TempPathFactory, written: list[str], count: int, ended: bool
) -> None:
    path = tmp_path_factory.mktemp("parts") / "file"
    data = ("\n".join(written) + ("\n" if ended else "")).encode()
    path.write_bytes(data)
    edges = [len(data) * number // count for number in range(count + 1)]
    found = "".join(each.text for a, b in pairwise(edges) for each in part(str(path), a, b))
    assert found.encode() == data
