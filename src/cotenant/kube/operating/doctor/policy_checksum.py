"""Computes the checksum of a policy's text, as the chart writes it beside the policy, to detect changes.

The chart sums up the spec as Helm's `toJson` writes it. The API server adds fields that the chart leaves out,
and newer API servers add more. So only fields that matter, and only non-empty ones, are included.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

ANNOTATION = "cotenant.dev/installed"
_PARTS = ("auditAnnotations", "failurePolicy", "matchConditions", "paramKind", "validations", "variables")
_MATCH = "matchConstraints"
_MATCHED = ("excludeResourceRules", "namespaceSelector", "objectSelector", "resourceRules")


def checksum(spec: Mapping[str, Any]) -> str:
    """As if `failurePolicy` were Fail: another value is found by itself, and repaired."""
    match = spec.get(_MATCH)
    parts = {key: spec[key] for key in _PARTS if spec.get(key)} | {"failurePolicy": "Fail"}
    if isinstance(match, Mapping):
        parts[_MATCH] = {key: match[key] for key in _MATCHED if match.get(key)}
        if match.get("matchPolicy", "Equivalent") != "Equivalent":
            parts[_MATCH]["matchPolicy"] = match["matchPolicy"]
    return hashlib.sha256(_as_go_writes(parts).encode()).hexdigest()


def _as_go_writes(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for each in "<>&\u2028\u2029":
        text = text.replace(each, f"\\u{ord(each):04x}")
    return text
