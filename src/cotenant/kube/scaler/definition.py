"""Makes the CustomResourceDefinition of GpuScalers from the Structs that we read them with.

`make deploy` writes it into the chart: schema, bounds, defaults, explanations and rules have one source.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, get_args, get_origin

import msgspec

from cotenant.kube.scaler.resource import GPU_SCALERS, GpuScalerStatus, ScalerCondition
from cotenant.kube.scaler.rules import RULES, Rule, duration_rule
from cotenant.scaling.fields import Kind, explanation, fields_of, kind_of
from cotenant.scaling.specification import GpuScalerSpec

SHORT = "gsc"
_COLUMNS = (
    ("Target", "string", ".spec.target.name", "The workload that is sized."),
    ("Replicas", "integer", ".status.replicas", "Replicas that the target is set to."),
    ("Desired", "integer", ".status.desired", "Replicas that were decided on."),
    ("Backlog", "string", ".status.backlog", "How long a message that arrives now would wait."),
    ("State", "string", ".status.state", "What the scaler is doing."),
    ("Since", "date", ".status.since", "Since when it is in this state."),
)
_WIDE = (
    ("Kind", "string", ".spec.target.kind", "Kind of the target."),
    ("Min", "integer", ".spec.replicas.min", "The fewest replicas."),
    ("Max", "integer", ".spec.replicas.max", "The most replicas."),
    ("Mode", "string", ".spec.mode", "Whether it acts or only observes."),
    ("Message", "string", ".status.message", "The last decision, with its figures."),
)
"""Shown by `kubectl get -o wide` too."""

_NUMBERS = {"ge": "minimum", "le": "maximum"}
_LENGTHS = {
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"max_length": "maxProperties"},
    "integer": _NUMBERS,
    "number": _NUMBERS,
}


def definition() -> dict[str, Any]:
    """Returns the `spec` of the CustomResourceDefinition."""
    whole = {
        "type": "object",
        "description": explanation(GpuScalerSpec),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GPU_SCALERS.group}/{GPU_SCALERS.version}"},
            "kind": {"type": "string", "description": GPU_SCALERS.kind},
            "metadata": {"type": "object"},
            "spec": _struct(GpuScalerSpec, "How the workload is sized and when its GPUs are released."),
            "status": _struct(GpuScalerStatus, explanation(GpuScalerStatus)),
        },
    }
    return {
        "group": GPU_SCALERS.group,
        "scope": "Namespaced",
        "names": {
            "kind": GPU_SCALERS.kind,
            "listKind": f"{GPU_SCALERS.kind}List",
            "plural": GPU_SCALERS.plural,
            "singular": GPU_SCALERS.kind.lower(),
            "shortNames": [SHORT],
        },
        "versions": [
            {
                "name": GPU_SCALERS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    *(_column(*each) for each in _COLUMNS),
                    *({**_column(*each), "priority": 1} for each in _WIDE),
                ],
                "schema": {"openAPIV3Schema": whole},
            }
        ],
    }


def _column(name: str, type: str, path: str, description: str) -> dict[str, Any]:
    return {"name": name, "type": type, "jsonPath": path, "description": description}


def _struct(kind: type[msgspec.Struct], told: str) -> dict[str, Any]:
    fields = list(fields_of(kind))
    required = [each.name for each in fields if each.required]
    if kind is ScalerCondition:
        required = ["type", "status"]
    schema: dict[str, Any] = {"type": "object", "description": told}
    if required:
        schema["required"] = required
    schema["properties"] = {
        each.name: _value(each.kind, each.explanation, _default(each.default)) for each in fields
    }
    return schema | _validations(*RULES.get(kind, ()))


def _default(value: Any) -> dict[str, Any]:
    """Texts, numbers and true are defaults that a reader may want to see; what is empty is just absent."""
    return {} if value is None or value is False or value in ("", (), {}) else {"default": value}


def _value(kind: Kind, told: str, default: dict[str, Any]) -> dict[str, Any]:
    if kind.struct is not None:
        return _struct(kind.struct, told)
    schema = _type(kind.hint)
    bounds = _LENGTHS.get(schema["type"], {})
    schema |= {name: kind.bound(bound) for bound, name in bounds.items() if kind.bound(bound) is not None}
    if kind.span is not None:
        told = f"{told} A Go duration {kind.span}."
        schema |= _validations(duration_rule(kind.span))
    return {"description": told, **schema, **default}


def _type(hint: Any) -> dict[str, Any]:
    origin = get_origin(hint)
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if hint is Any:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if origin is dict:
        item = kind_of(get_args(hint)[1])
        if item.hint is Any:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "additionalProperties": _without_words(_value(item, "", {}))}
    if origin is tuple:
        item = kind_of(get_args(hint)[0])
        listed: dict[str, Any] = {"type": "array", "items": _without_words(_value(item, "", {}))}
        if item.struct is ScalerCondition:
            listed |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        return listed
    if hint is datetime:
        return {"type": "string", "format": "date-time"}
    return dict(_SCALARS[hint])


_SCALARS: dict[type, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
}


def _without_words(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "description" or value}


def _validations(*rules: Rule) -> dict[str, Any]:
    if not rules:
        return {}
    return {
        "x-kubernetes-validations": [
            {
                "rule": rule.expression,
                "message": rule.message,
                **({"fieldPath": rule.field} if rule.field else {}),
            }
            for rule in rules
        ]
    }
