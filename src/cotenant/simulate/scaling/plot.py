"""Draws the wanted replicas of each policy over the trace's time: as lines of text, or as an SVG file."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from cotenant.simulate.bars import ASCII, BLOCKS, bar, squeeze
from cotenant.simulate.scaling.comparing import Row
from cotenant.simulate.scaling.recording import SLICES
from cotenant.simulate.scaling.workload import Workload

__all__ = ["BLOCKS", "LATE", "busy_slots", "svg", "text"]

LATE, LATE_ASCII = "▔", "!"
WIDTH, HEIGHT, LEFT, GAP = 960, 110, 90, 34
BUSY = "busy"


def text(row: Row, width: int, *, unicode: bool = True) -> list[str]:
    """Draws a line for the work and two for each policy: its replicas, and where messages were late.

    Every line has its own scale; the highest value stands at its end.
    """
    signs = BLOCKS if unicode else ASCII
    labels = [BUSY, *row.outcomes]
    margin = max(map(len, labels)) + 1
    columns = max(10, min(SLICES, width - margin - 8))
    busy = squeeze(busy_slots(row.load.workload), columns)
    lines = [f"{BUSY:<{margin}}{bar(busy, signs)} {max(busy):.1f}"]
    for name, outcome in row.outcomes.items():
        wanted = squeeze(outcome.timeline.wanted, columns)
        lines.append(f"{name:<{margin}}{bar(wanted, signs)} {max(wanted):.0f}")
        late = squeeze(outcome.timeline.late, columns)
        if any(late):
            mark = LATE if unicode else LATE_ASCII
            marks = "".join(mark if each else " " for each in late).rstrip()
            lines.append(f"{' late':<{margin}}{marks}")
    return lines


def svg(row: Row, title: str) -> str:
    """Draws a panel for each policy: replicas, the busy ones as an area, and red where messages were late."""
    outcomes = row.outcomes
    height = 40 + len(outcomes) * (HEIGHT + GAP)
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    busy = busy_slots(row.load.workload)
    for number, (name, outcome) in enumerate(outcomes.items()):
        top = 40 + number * (HEIGHT + GAP)
        note = (
            f"{outcome.late_percent:.2f} % late, {outcome.turns_per_hour:.0f} turns/h, "
            f"{outcome.replica_hours:.1f} replica-hours"
        )
        parts += _panel(name, note, outcome.timeline.wanted, outcome.timeline.late, busy, top)
    return "\n".join([*parts, "</svg>", ""])


def busy_slots(workload: Workload) -> list[float]:
    """Returns for each slice of the trace's time how many slots its work would keep busy."""
    horizon = workload.duration
    slices = [0.0] * SLICES
    for at, service in zip(workload.arrivals, workload.services, strict=True):
        slices[min(SLICES - 1, int(at / horizon * SLICES))] += service
    return [each / (horizon / SLICES) for each in slices]


def _panel(
    name: str, note: str, wanted: Sequence[int], late: Sequence[int], busy: Sequence[float], top: int
) -> list[str]:
    highest = max(*wanted, *busy, 1.0)
    bottom, step = top + HEIGHT, (WIDTH - LEFT - 10) / SLICES

    def place(at: int, value: float) -> str:
        return f"{LEFT + at * step:.1f},{bottom - value / highest * (HEIGHT - 16):.1f}"

    def stairs(values: Sequence[float]) -> str:
        return " ".join(f"{place(at, value)} {place(at + 1, value)}" for at, value in enumerate(values))

    area = f"{place(0, 0)} {stairs(busy)} {place(SLICES, 0)}"
    red = [
        f'<rect x="{LEFT + at * step:.1f}" y="{bottom}" width="{step:.2f}" height="5" fill="#c0392b"/>'
        for at, count in enumerate(late)
        if count
    ]
    return [
        f'<text x="10" y="{top + 14}" font-weight="bold">{escape(name)}</text>',
        f'<text x="{LEFT}" y="{top + 10}" fill="#555">{escape(note)}</text>',
        f'<text x="{LEFT - 6}" y="{top + 22}" text-anchor="end" fill="#555">{highest:.0f}</text>',
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end" fill="#555">0</text>',
        f'<polygon points="{area}" fill="#d5e3f0"/>',
        f'<polyline points="{stairs(wanted)}" fill="none" stroke="#1f5f99" stroke-width="1.5"/>',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - 10}" y2="{bottom}" stroke="#999"/>',
        *red,
    ]
