"""Draws what containers used over time, their peak, what they ask for and what is advised, as SVG or HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape

from cotenant.core.rightsizing.advice import Advice, Report
from cotenant.core.units import format_bytes

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 960, 150, 80, 130, 64, 46
COLUMNS = 600
MOST_PANELS = 100
"""The largest are drawn: a page of more would not be read."""
_LINES = (("advised", "#1a7f37", "none"), ("now", "#9a6700", "none"), ("target", "#1a7f37", "2 3"))
"""Name, colour and dashes."""
_LEGEND = "grey: the highest of all replicas; dotted: where a step leads"


def page(report: Report, step: float, title: str) -> str:
    """Makes a page that needs nothing else."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{_safe(title)}</title>
<style>body{{margin:1rem;font-family:sans-serif}}svg{{max-width:100%;height:auto}}</style></head>
<body>
{svg(report, step, title)}</body></html>
"""


def svg(report: Report, step: float, title: str) -> str:
    """Draws a panel for each group, those that use most first."""
    shown = sorted(report.advice, key=lambda each: -each.evidence.peak)[:MOST_PANELS]
    height = TOP + max(1, len(shown)) * (HEIGHT + GAP)
    when = f"{moment_text(report.first)} to {moment_text(report.end)} UTC; {_LEGEND}"
    left_out = len(report.advice) - len(shown)
    if left_out:
        when += f"; {left_out} smaller ones are not drawn"
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{_safe(title)}</text>',
        f'<text x="{LEFT}" y="40" fill="#57606a">{_safe(when)}</text>',
    ]
    for number, each in enumerate(shown):
        parts += _panel(each, report, step, TOP + number * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def outline(advice: Advice, first: float, end: float, step: float) -> list[float | None]:
    """Returns the highest of all replicas in each of COLUMNS equal parts of the time; None without any."""
    columns: list[float | None] = [None] * COLUMNS
    width = max(step, end - first) / COLUMNS
    for track in advice.group.tracks:
        for bucket, peak in zip(track.buckets, track.peaks, strict=True):
            begin = max(0, int((bucket * step - first) / width))
            until = max(begin + 1, int(((bucket + 1) * step - first) / width))
            for at in range(min(begin, COLUMNS - 1), min(until, COLUMNS)):
                before = columns[at]
                columns[at] = peak if before is None or peak > before else before
    return columns


def _panel(advice: Advice, report: Report, step: float, top: float) -> list[str]:
    gpus, owner, evidence = advice.gpus, advice.group.owner, advice.evidence
    sizes = {"advised": advice.advised, "now": advice.now, "target": advice.target}
    if advice.target == advice.advised:
        sizes["target"] = None
    known = [each // gpus for each in sizes.values() if each is not None]
    most, bottom = 1.08 * max(1, evidence.peak, *known), top + HEIGHT

    def height(size: float) -> float:
        return bottom - size / most * (HEIGHT - 8)

    name = " ".join(filter(None, (owner.workload, owner.container, owner.version)))
    note = f"peak {format_bytes(evidence.peak)} of {evidence.peak_of}"
    note += f", confidence {advice.confidence}" if advice.advised is not None else f"; refused: {advice.why}"
    peak_at = height(evidence.peak) + 4
    parts = [
        f'<text x="{LEFT}" y="{top - 8:.0f}" font-weight="bold">{_safe(name, 60)}</text>',
        f'<text x="{WIDTH - 10}" y="{top - 8:.0f}" text-anchor="end" fill="#57606a">{_safe(note, 80)}</text>',
        f'<path d="M{LEFT} {top:.0f}V{bottom:.0f}H{WIDTH - RIGHT}" fill="none" stroke="#d0d7de"/>',
        f'<text x="{LEFT - 6}" y="{peak_at:.0f}" text-anchor="end">{format_bytes(evidence.peak)}</text>',
        *_areas(outline(advice, report.first, report.end, step), height, bottom),
    ]
    labels, right = list[float](), WIDTH - RIGHT
    for label, colour, dashes in _LINES:
        size = sizes[label]
        if size is not None:
            y = height(size // gpus)
            text = f"{label} {format_bytes(size // gpus)}"
            parts += [
                f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{colour}" stroke-dasharray="{dashes}"/>',
                f'<text x="{right + 6}" y="{_apart(y + 4, labels):.1f}" fill="{colour}">{text}</text>',
            ]
    return parts


def _apart(y: float, taken: list[float]) -> float:
    """Moves a label down until it covers no other."""
    while any(abs(y - other) < 13 for other in taken):
        y += 13
    taken.append(y)
    return y


def _areas(columns: Sequence[float | None], height: Callable[[float], float], bottom: float) -> list[str]:
    """Draws an area for each stretch with samples."""
    width = (WIDTH - LEFT - RIGHT) / COLUMNS
    parts: list[str] = []
    points: list[str] = []
    for at, value in enumerate([*columns, None]):
        left = LEFT + at * width
        if value is None:
            if points:
                edges = " ".join([*points, f"{left:.1f},{bottom:.1f}"])
                parts.append(
                    f'<polygon points="{edges}" fill="#afb8c1" stroke="#6e7781" stroke-width="0.5"/>'
                )
                points = []
            continue
        if not points:
            points.append(f"{left:.1f},{bottom:.1f}")
        y = height(value)
        points.append(f"{left:.1f},{y:.1f} {left + width:.1f},{y:.1f}")
    return parts


def moment_text(seconds: float) -> str:
    """Formats a Unix time in UTC."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return f"{seconds:.0f}"


def _safe(text: str, most: int = 200) -> str:
    """Escapes for SVG and HTML. Names come from others, and XML has no control characters."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in text)
    return escape(shown if len(shown) <= most else shown[:most] + "...")
