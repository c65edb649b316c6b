"""Draws how a cluster fills while pods come: as lines of text, or as an SVG file."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from cotenant.kube.scheduling.stranded import Cause
from cotenant.simulate.bars import ASCII, BLOCKS, bar, squeeze
from cotenant.simulate.placement.comparing import SLICES, Moment, Row, percent

__all__ = ["BLOCKS", "svg", "text"]

WIDTH, HEIGHT, LEFT, GAP, TOP = 960, 150, 90, 40, 82
LINES = ("allocated", "stranded", "blocked")
COLOURS = {
    Cause.REMAINDER: ("#e0a030", "remainder too small"),
    Cause.CARDS: ("#b8860b", "too few such GPUs on the node"),
    Cause.CPU: ("#c0563b", "no CPU"),
    Cause.MEMORY: ("#8e44ad", "no memory"),
    Cause.PODS: ("#34495e", "no place for a pod"),
    Cause.MODEL: ("#16a085", "another model is named"),
    Cause.CORDONED: ("#7f8c8d", "cordoned"),
}
"""From the bottom up, with what the legend says."""
ALLOCATED, FREE, REFUSED = "#8fb7dc", "#eef3f8", "#c0392b"


def text(rows: Sequence[Row], width: int, *, unicode: bool = True) -> list[str]:
    """Draws three lines for each row: what is allocated and stranded, in percent of the GPU memory, and what
    is blocked of each slice of the pods. The highest value stands at the end.
    """
    signs = BLOCKS if unicode else ASCII
    margin = max(map(len, LINES)) + 2
    columns = max(10, min(SLICES, width - margin - len("  ") - len(" 100.0 %")))
    lines = list[str]()
    for row in rows:
        timeline, room = row.runs[0].timeline, row.runs[0].room
        drawn = (
            [percent(each.allocated, room) for each in timeline],
            [percent(each.free.bytes, room) for each in timeline],
            [percent(each.refused, each.asked) for each in timeline],
        )
        lines.append(row.name)
        for name, values in zip(LINES, drawn, strict=True):
            squeezed = squeeze(values, columns)
            lines.append(f"  {name:<{margin}}{bar(squeezed, signs, 100.0)} {max(values):.1f} %")
    return lines


def svg(rows: Sequence[Row], title: str) -> str:
    """Draws a panel for each row: what is allocated and stranded by cause, as areas up to all GPU memory, and
    red below it where pods are blocked.
    """
    height = TOP + len(rows) * (HEIGHT + GAP)
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
        *_legend(rows),
    ]
    for number, row in enumerate(rows):
        parts += _panel(row, TOP + number * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _legend(rows: Sequence[Row]) -> list[str]:
    """Explains the colours of what is there at all."""
    there = [cause for cause in COLOURS if any(row.stranded_by(cause) >= 0.005 for row in rows)]
    shown = [(ALLOCATED, "allocated"), *(COLOURS[cause] for cause in there), (REFUSED, "pods are blocked")]
    parts, x, y = list[str](), LEFT, 32
    for colour, meaning in shown:
        width = 30 + 7 * len(meaning)
        if x + width > WIDTH:
            x, y = LEFT, y + 16
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="{y + 9}" fill="#555">{meaning}</text>')
        x += width
    return parts


def _panel(row: Row, top: int) -> list[str]:
    run = row.runs[0]
    timeline, bottom, width = run.timeline, top + HEIGHT, WIDTH - LEFT - 10
    last = timeline[-1].pods

    def x(moment: Moment) -> float:
        return LEFT + width * moment.pods / last

    def area(below: Sequence[float], above: Sequence[float], colour: str) -> str:
        there = [
            f"{x(each):.1f},{_y(value, bottom):.1f}" for each, value in zip(timeline, above, strict=True)
        ]
        back = [f"{x(each):.1f},{_y(value, bottom):.1f}" for each, value in zip(timeline, below, strict=True)]
        return f'<polygon points="{" ".join([*there, *reversed(back)])}" fill="{colour}"/>'

    note = (
        f"{row.allocated:.2f} % allocated, {row.stranded:.2f} % stranded, {row.refused:.2f} % of what is "
        "asked for is blocked"
    )
    level = [percent(each.allocated, run.room) for each in timeline]
    parts = [
        f'<text x="{LEFT}" y="{top - 6}" font-weight="bold">{escape(row.name)}</text>',
        f'<text x="{WIDTH - 10}" y="{top - 6}" text-anchor="end" fill="#555">{note}</text>',
        f'<rect x="{LEFT}" y="{top}" width="{width}" height="{HEIGHT}" fill="{FREE}"/>',
        area([0.0] * len(level), level, ALLOCATED),
    ]
    for cause, (colour, _) in COLOURS.items():
        above = [
            value + percent(each.free.causes[cause], run.room)
            for value, each in zip(level, timeline, strict=True)
        ]
        if above != level:
            parts.append(area(level, above, colour))
        level = above
    before = float(LEFT)
    for each in timeline:
        if each.refused:
            high = 8 * each.refused / each.asked
            parts.append(
                f'<rect x="{before:.1f}" y="{bottom}" width="{x(each) - before:.1f}" height="{high:.1f}" '
                f'fill="{REFUSED}"/>'
            )
        before = x(each)
    return [
        *parts,
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end" fill="#555">100 %</text>',
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end" fill="#555">0</text>',
        f'<text x="{WIDTH - 10}" y="{bottom + 20}" text-anchor="end" fill="#555">{last} pods</text>',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - 10}" y2="{bottom}" stroke="#999"/>',
    ]


def _y(value: float, bottom: int) -> float:
    return bottom - value / 100 * HEIGHT
