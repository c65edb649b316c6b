"""Draws the same picture as `plot` as a PNG, without a library: an indexed image, and letters of 3 by 5
dots.
"""

from __future__ import annotations

import struct
import zlib

from cotenant.advice.plot import COLUMNS, moment_text, outline
from cotenant.core.rightsizing.advice import Advice, Report
from cotenant.core.units import format_bytes

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 960, 120, 20, 190, 44, 34
MOST_PANELS = 50
SCALE = 2
"""Pixels of a dot."""
_PALETTE = ((255, 255, 255), (36, 41, 47), (175, 184, 193), (208, 215, 222), (26, 127, 55), (154, 103, 0))
_WHITE, _TEXT, _AREA, _AXIS, _GREEN, _BROWN = range(6)
_DOTS = (
    "A25755 B65656 C34443 D65556 E74647 F74644 G34553 H55755 I72227 J11152 K55655 L44447 M57755 N65555 "
    "O25552 P65644 Q25563 R65655 S34216 T72222 U55557 V55552 W55775 X55255 Y55222 Z71247 075557 126227 "
    "271747 371317 455711 574717 674757 771122 875757 975717 -00700 .00002 /11244 :02020 _00007 ,00024 "
    "%51245 (12221 )42224 +02720 #57575 >42124 <12421 @75747 [64446 ]31113 ?71202 !22202 ;02024 |22222 "
)
"""Each letter, and its rows from the top: three dots as one octal digit."""
_LETTERS = {_DOTS[at]: _DOTS[at + 1 : at + 6] for at in range(0, len(_DOTS), 7)}


class Canvas:
    """An image of numbers of the palette."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._rows = [bytearray(width) for _ in range(height)]

    def fill(self, x: float, y: float, width: float, height: float, colour: int) -> None:
        """Fills a rectangle; what is outside the image is cut off."""
        left, right = max(0, round(x)), min(self.width, round(x + width))
        if right > left:
            for row in range(max(0, round(y)), min(self.height, round(y + height))):
                self._rows[row][left:right] = bytes([colour]) * (right - left)

    def write(self, x: int, y: int, text: str, colour: int, most: int = 1000) -> None:
        """Writes small capitals from (x, y) down; longer texts are cut at `most` letters."""
        for number, sign in enumerate(text.upper()[:most]):
            rows = _LETTERS.get(sign, "00000" if sign == " " else _LETTERS["?"])
            for down, digit in enumerate(rows):
                for right in range(3):
                    if int(digit) >> (2 - right) & 1:
                        at = x + (number * 4 + right) * SCALE
                        self.fill(at, y + down * SCALE, SCALE, SCALE, colour)

    def png(self) -> bytes:
        """Encodes the image."""
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)
        pixels = zlib.compress(b"".join(b"\0" + row for row in self._rows), 6)
        palette = bytes(part for colour in _PALETTE for part in colour)
        chunks = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", pixels), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in chunks
        )


def picture(report: Report, step: float, title: str) -> bytes:
    """Draws a panel for each group, those that use most first."""
    shown = sorted(report.advice, key=lambda each: -each.evidence.peak)[:MOST_PANELS]
    canvas = Canvas(WIDTH, TOP + max(1, len(shown)) * (HEIGHT + GAP))
    canvas.write(LEFT, 8, title, _TEXT, 115)
    left_out = len(report.advice) - len(shown)
    span = f"{moment_text(report.first)} to {moment_text(report.end)} UTC"
    if left_out:
        span += f"; {left_out} smaller ones are not drawn"
    canvas.write(LEFT, 24, span, _TEXT, 115)
    for number, each in enumerate(shown):
        _panel(canvas, each, report, step, TOP + number * (HEIGHT + GAP))
    return canvas.png()


def _panel(canvas: Canvas, advice: Advice, report: Report, step: float, top: int) -> None:
    gpus, owner = advice.gpus, advice.group.owner
    name = " ".join(filter(None, (owner.workload, owner.container, owner.version)))
    peak = f"  peak {format_bytes(advice.evidence.peak)}"
    canvas.write(LEFT, top, name[:90] + peak, _TEXT, 115)
    top += 14
    bottom, right = top + HEIGHT, WIDTH - RIGHT
    sizes = {"now": advice.now, "advised": advice.advised}
    most = 1.08 * max(1, advice.evidence.peak, *(each // gpus for each in sizes.values() if each is not None))
    width = (right - LEFT) / COLUMNS
    for at, value in enumerate(outline(advice, report.first, report.end, step)):
        if value is not None:
            height = value / most * HEIGHT
            canvas.fill(LEFT + at * width, bottom - height, width + 1, height, _AREA)
    canvas.fill(LEFT, bottom, right - LEFT, 1, _AXIS)
    canvas.fill(LEFT, top, 1, HEIGHT, _AXIS)
    for down, (label, colour) in enumerate((("now", _BROWN), ("advised", _GREEN))):
        size = sizes[label]
        if size is not None:
            y = bottom - size / gpus / most * HEIGHT
            canvas.fill(LEFT, y, right - LEFT, 2, colour)
            canvas.write(right + 8, top + 14 * down, f"{label} {format_bytes(size // gpus)}", colour, 22)
    if advice.advised is None:
        canvas.write(right + 8, top + 28, f"refused: {advice.reason}", _TEXT, 22)
