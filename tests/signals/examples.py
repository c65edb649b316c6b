"""The examples of docs/queues.md, with a port of this machine in place of each port of the page."""

from __future__ import annotations

import json
from typing import Any

import pages
import yaml

EXAMPLES: list[dict[str, Any]] = [yaml.safe_load(text) for text in pages.manifests("queues")]
COUNTS = {"redis": 3, "rabbitmq": 2, "prometheus": 2, "http": 1, "nats": 1}
"""How many of each kind the tests ask a real server; test_checking.py compares it with the page."""


def example(kind: str, number: int, port: int) -> dict[str, Any]:
    """Returns the example of a kind with this number, from 0, that asks this port of loopback."""
    found = [each for each in EXAMPLES if kind in each][number]
    scheme, _, rest = found[kind]["url"].partition("://")
    host, _, path = rest.partition("/")
    assert host.startswith("queue:")
    url = f"{scheme}://127.0.0.1:{port}{f'/{path}' if path else ''}"
    return json.loads(json.dumps(found)) | {kind: found[kind] | {"url": url}}
