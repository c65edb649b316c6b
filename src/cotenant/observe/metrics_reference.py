"""Writes `docs/metrics.md` from the table of metrics. `make docs` runs it, and a test keeps the two equal."""

from __future__ import annotations

from cotenant.observe.metrics import Entry, Exporter, Metric

_HEAD = """\
# Metrics

Every metric that Cotenant exports. This page is generated from `src/cotenant/observe/metrics.py` by
`make docs`: change the table there, not this file. How to scrape them:
[monitoring.md](monitoring.md). Which questions they answer: [sizing.md](sizing.md#questions).
"""
_NODE = """\
## A node's GPUs and containers
From its agent, port 8889; on one machine from `cotenant metrics`, where `namespace` is the user, `pod` the
command's name and `container` always `job`. That command also has the length of the line and how long who
waits in it, under the server's names."""
_EXPORTERS: tuple[tuple[Exporter, str], ...] = (
    ("node", _NODE),
    ("agent", "## Agent, port 8889\nOf the agent itself."),
    ("server", "## Server, port 8443\nOf one replica."),
)
_WITH_BOTH = frozenset({"agent", "server"})


def reference() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(*each) for each in _EXPORTERS)])


def _section(exporter: Exporter, head: str) -> str:
    rows = "".join(_row(each.value) for each in Metric if _is_of(each.value, exporter))
    return f"{head}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}"


def _is_of(entry: Entry, exporter: Exporter) -> bool:
    return entry.exporter == exporter or (entry.exporter == "both" and exporter in _WITH_BOTH)


def _row(entry: Entry) -> str:
    labels = ", ".join(entry.labels) or "-"
    meaning = entry.help
    if entry.buckets:
        meaning += f" Buckets in seconds: {', '.join(f'{bound:g}' for bound in entry.buckets)}."
    return f"| `{entry.name}` | {entry.kind} | {labels} | {meaning} |\n"
