"""Writes `docs/metrics.md` from the table of metrics. `make docs` runs it, and a test keeps the two equal."""

from __future__ import annotations

from cotenant.observe.metrics import Entry, Exporter, Metric

_HEAD = """\
# Metrics

Every metric that Cotenant exports. This page is generated from `src/cotenant/observe/metrics.py` by
`make docs`: change the table there, not this file. How to scrape them, and which questions they answer:
[sizing.md](sizing.md#metrics).
"""
_EXPORTERS: tuple[tuple[Exporter, str], ...] = (
    ("agent", "## Agent, port 8889\nOf one node: its GPUs, the containers on them, and the agent itself."),
    ("server", "## Server, port 8443\nOf one replica."),
)


def reference() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(*each) for each in _EXPORTERS)])


def _section(exporter: Exporter, head: str) -> str:
    rows = "".join(_row(each.value) for each in Metric if each.value.exporter in {exporter, "both"})
    return f"{head}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}"


def _row(entry: Entry) -> str:
    labels = ", ".join(entry.labels) or "-"
    meaning = entry.help
    if entry.buckets:
        meaning += f" Buckets in seconds: {', '.join(f'{bound:g}' for bound in entry.buckets)}."
    return f"| `{entry.name}` | {entry.kind} | {labels} | {meaning} |\n"
