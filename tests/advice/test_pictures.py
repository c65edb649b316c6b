"""Pictures of advice: SVG, a page, and PNG."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
import zlib
from html.parser import HTMLParser

from advice.reports import STEP, gathered, report
from core.rightsizing.made import GIB, group, track

from cotenant.advice import plot, png
from cotenant.core.rightsizing.advice import Rules, advise

SPACE = "{http://www.w3.org/2000/svg}"


def test_each_group_has_a_panel_with_its_lines() -> None:
    root = ET.fromstring(plot.svg(report(), STEP, "title <&>"))
    texts = ["".join(each.itertext()) for each in root.iter(f"{SPACE}text")]
    assert "title <&>" in texts
    assert "team/deployment/web server v1" in texts
    assert "advised 18Gi" in texts
    assert "now 24Gi" in texts
    assert "target 10Gi" in texts
    assert any("refused: 50m of samples" in each for each in texts)
    assert len(root.findall(f"{SPACE}polygon")) == 3


def test_a_page_needs_nothing_else() -> None:
    text = plot.page(report(), STEP, "title")
    HTMLParser().feed(text)
    assert text.startswith("<!doctype html>")
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in plot.page(
        report(gathered(web="team/deployment/<script>alert(1)</script>")), STEP, "x"
    )


def test_control_characters_do_not_break_the_xml() -> None:
    ET.fromstring(plot.svg(report(gathered(web="\x1b[31m\x00\ufffe名前")), STEP, "\x07"))


def test_gaps_are_gaps_and_the_highest_of_a_column_is_drawn() -> None:
    levels = [GIB] * 1000 + [None] * 1000 + [GIB] * 999 + [3 * GIB]
    made = advise([group(track(levels))], STEP, Rules(STEP, starts_are_seen=False))
    outline = plot.outline(made.advice[0], made.first, made.end, STEP)
    assert outline[0] == GIB
    assert outline[plot.COLUMNS // 2] is None
    assert outline[-1] == 3 * GIB


def test_short_histories_fill_their_columns() -> None:
    made = advise([group(track([GIB] * 3))], STEP, Rules(STEP, starts_are_seen=False))
    assert None not in plot.outline(made.advice[0], made.first, made.end, STEP)


def test_only_the_largest_are_drawn() -> None:
    many = [group(track([GIB + at] * 3), workload=f"w{at}") for at in range(plot.MOST_PANELS + 5)]
    made = advise(many, STEP, Rules(STEP, starts_are_seen=False))
    text = plot.svg(made, STEP, "x")
    assert "5 smaller ones are not drawn" in text
    assert ">w104 main<" in text
    assert ">w0 main<" not in text


def pixels(data: bytes) -> tuple[int, int, bytes]:
    """Decodes as the PNG specification says, with its checksums."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(name + body)
        chunks[name] = body
        at += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = zlib.decompress(chunks[b"IDAT"])
    assert len(rows) == height * (width + 1)
    assert max(rows) < len(chunks[b"PLTE"]) // 3
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    return width, height, rows


def test_a_png_is_one_and_has_the_lines() -> None:
    width, height, rows = pixels(png.picture(report(), STEP, "título \x1b"))
    assert (width, height) == (960, png.TOP + 3 * (png.HEIGHT + png.GAP))
    assert rows.count(bytes([4]) * 700) >= 2, "green lines of what is advised"


def test_every_letter_has_its_dots() -> None:
    canvas = png.Canvas(40, 12)
    for sign in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-./:_,%()+#><@[]?!;|":
        assert len(png._LETTERS[sign]) == 5
        canvas.write(0, 0, sign, 1)
    canvas.write(-500, -500, "outside", 1)
    canvas.fill(-5, -5, 10_000, 10_000, 2)
    pixels(canvas.png())
