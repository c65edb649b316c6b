"""Draws the picture of docs/concepts.md and README.md as SVG, once for light pages and once for dark ones.

`make docs` writes both files. Texts leave room for a wider font: which one a reader has is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 800, 402
SANS = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace"


@dataclass(frozen=True)
class Colours:
    paper: str
    ink: str
    soft: str
    """Explanations under a heading."""
    line: str
    box: str
    free: str
    grants: tuple[str, str, str]
    refused: str


LIGHT = Colours(
    paper="#ffffff",
    ink="#1f2328",
    soft="#59636e",
    line="#818b98",
    box="#f6f8fa",
    free="#ffffff",
    grants=("#b6dcff", "#b4f0c4", "#ffdf9e"),
    refused="#b3261e",
)
DARK = Colours(
    paper="#0d1117",
    ink="#e6edf3",
    soft="#9da7b3",
    line="#6e7781",
    box="#161b22",
    free="#0d1117",
    grants=("#1f4f80", "#1d5a34", "#6b4a10"),
    refused="#ff7b72",
)


def picture(colours: Colours) -> str:
    """Returns the whole SVG file."""
    body = "\n".join([*_demands(colours), *_ledger(colours), *_line(colours), *_slot(colours)])
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" \
role="img" \
aria-label="A demand is charged in the ledger and becomes a grant, or waits in line; \
the grant's limit is in a slot, and an enforcer holds the program to it">
<defs>
{_head("arrow", colours.line)}
{_head("refused", colours.refused)}
</defs>
<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{colours.paper}"/>
{body}
</svg>
"""


def _head(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
    )


def _demands(colours: Colours) -> Iterator[str]:
    yield from _heading(colours, 16, "demand", "what a program asks for")
    spellings = (
        ("a command", ("cotenant run", "  --gpu-memory 4Gi -- …")),
        ("a pod", ("cotenant.dev/gpu-memory:", "  4Gi")),
        ("a pod in another dialect", ("aliyun.com/gpu-mem: 4",)),
    )
    top, middles = 72, []
    for what, code in spellings:
        height = 32 + 18 * len(code)
        middles.append(top + height / 2)
        yield _box(colours, 16, top, 200, height)
        yield _text(26, top + 20, what, colours.soft, size=12)
        for number, text in enumerate(code):
            yield _text(26, top + 40 + 18 * number, text, colours.ink, font=MONO, size=12)
        top += height + 12
    for middle in middles:
        yield _stroke(colours, f"M216 {middle:g} H234")
    yield _stroke(colours, f"M234 {middles[0]:g} V{middles[-1]:g}")
    yield _arrow(colours, "M234 144 H260")


def _ledger(colours: Colours) -> Iterator[str]:
    yield from _heading(colours, 266, "ledger", "who holds what on which GPU")
    yield _box(colours, 266, 72, 220, 144)
    cards = (
        ("GPU 0, 16Gi", (("chat 6Gi", 6, 0), ("4Gi", 4, 1), ("free", 6, None))),
        ("GPU 1, 16Gi", (("train 12Gi", 12, 2), ("free", 4, None))),
    )
    for row, (name, shares) in enumerate(cards):
        top = 84 + 66 * row
        yield _text(278, top + 12, name, colours.soft, size=12)
        left = 278.0
        for label, size, colour in shares:
            wide = size * 196 / 16
            fill = colours.free if colour is None else colours.grants[colour]
            yield _box(colours, left, top + 20, wide, 32, fill=fill, round_=0)
            yield _text(left + wide / 2, top + 41, label, colours.ink, size=12, anchor="middle")
            left += wide


def _line(colours: Colours) -> Iterator[str]:
    yield _arrow(colours, "M330 220 V284")
    yield _text(322, 257, "no room", colours.soft, size=12, anchor="end")
    yield _arrow(colours, "M422 288 V224")
    yield _text(414, 257, "room again", colours.soft, size=12, anchor="end")
    yield _box(colours, 266, 290, 220, 96)
    yield _text(278, 314, "line", colours.ink, size=18, weight="bold")
    yield _text(322, 314, "demands that wait", colours.soft, size=13)
    for number, (place, name, size) in enumerate((("1st", "batch", "10Gi"), ("2nd", "report", "8Gi"))):
        base = 342 + 26 * number
        yield _text(278, base, place, colours.soft, size=12)
        yield _text(322, base, name, colours.ink, size=12)
        yield _text(474, base, size, colours.ink, size=12, anchor="end")


def _slot(colours: Colours) -> Iterator[str]:
    yield _text(535, 100, "grant", colours.ink, size=18, weight="bold", anchor="middle")
    yield _text(535, 120, "4Gi on GPU 0", colours.soft, size=12, anchor="middle")
    yield _arrow(colours, "M490 132 H580")
    yield from _heading(colours, 586, "slot", "its limit, and what is used")
    own = colours.grants[1]
    yield _box(colours, 586, 72, 198, 64, fill=own)
    for base, name, size in ((98, "limits", "4.0Gi"), (122, "usage", "1.2Gi")):
        yield _text(598, base, name, colours.ink, font=MONO, size=12)
        yield _text(772, base, size, colours.ink, font=MONO, size=12, anchor="end")
    yield _box(colours, 586, 164, 170, 34)
    yield _text(671, 186, "program", colours.ink, anchor="middle")
    yield _arrow(colours, "M770 138 V244", dashed=True)
    yield _arrow(colours, "M624 200 V244")
    yield _text(618, 227, "2Gi", colours.soft, size=12, anchor="end")
    yield _arrow(colours, "M670 200 V244")
    yield _text(664, 227, "8Gi", colours.soft, size=12, anchor="end")
    yield _arrow(colours, "M694 248 V204", refused=True)
    yield _text(702, 222, "out of", colours.refused, size=12)
    yield _text(702, 237, "memory", colours.refused, size=12)
    yield _box(colours, 586, 250, 198, 58, fill=own)
    yield _text(685, 275, "enforcer", colours.ink, size=18, weight="bold", anchor="middle")
    yield _text(685, 296, "the shim, a preloaded library", colours.ink, size=11, anchor="middle")
    yield _arrow(colours, "M624 310 V346")
    yield _text(618, 334, "2Gi", colours.soft, size=12, anchor="end")
    yield _box(colours, 586, 352, 198, 34)
    yield _text(685, 374, "CUDA driver", colours.ink, anchor="middle")


def _heading(colours: Colours, left: float, word: str, meaning: str) -> Iterator[str]:
    yield _text(left, 34, word, colours.ink, size=18, weight="bold")
    yield _text(left, 56, meaning, colours.soft, size=13)


def _box(
    colours: Colours,
    left: float,
    top: float,
    wide: float,
    high: float,
    *,
    fill: str | None = None,
    round_: int = 6,
) -> str:
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{wide:g}" height="{high:g}" rx="{round_}" '
        f'fill="{fill or colours.box}" stroke="{colours.line}"/>'
    )


def _text(
    left: float,
    base: float,
    text: str,
    fill: str,
    *,
    size: int = 13,
    font: str = SANS,
    anchor: str = "start",
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{left:g}" y="{base:g}" font-family="{font}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{fill}" xml:space="preserve">{escape(text)}</text>'
    )


def _arrow(colours: Colours, path: str, *, dashed: bool = False, refused: bool = False) -> str:
    head = "refused" if refused else "arrow"
    drawn = _stroke(colours, path, dashed=dashed, colour=colours.refused if refused else None)
    return drawn.replace("/>", f' marker-end="url(#{head})"/>')


def _stroke(colours: Colours, path: str, *, dashed: bool = False, colour: str | None = None) -> str:
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{colour or colours.line}" stroke-width="1.5"{dashes}/>'
