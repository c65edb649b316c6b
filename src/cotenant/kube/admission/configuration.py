"""Builds the MutatingWebhookConfiguration: for which requests the API server calls the webhook.

It fails closed, so it must be called for GPU pods only: `matchConditions` leave all others alone, also while
every server is down. No namespace is excluded: a GPU pod of kube-system takes memory of the same GPUs. The
server itself requests no GPU, so it can always start.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.resources import MUTATING_WEBHOOK_CONFIGURATIONS
from cotenant.kube.settings import Settings

NAME = "cotenant"
WEBHOOK = "pods.cotenant.dev"
PATH = "/mutate"


def webhook_configuration(settings: Settings, dialects: Dialects, ca_bundle: bytes = b"") -> dict[str, Any]:
    """Builds the object to apply. Without `ca_bundle` the certificate keeper fills it in."""
    client: dict[str, Any] = {
        "service": {
            "namespace": settings.namespace,
            "name": settings.webhook.service,
            "path": PATH,
            "port": 443,
        }
    }
    if ca_bundle:
        client["caBundle"] = base64.b64encode(ca_bundle).decode()
    webhook = {
        "name": WEBHOOK,
        "clientConfig": client,
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [{"name": "gpu-pods", "expression": gpu_pods(dialects)}],
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": MUTATING_WEBHOOK_CONFIGURATIONS.api_version,
        "kind": MUTATING_WEBHOOK_CONFIGURATIONS.kind,
        "metadata": {"name": NAME},
        "webhooks": [webhook],
    }


def gpu_pods(dialects: Dialects) -> str:
    """Writes the CEL expression that is true for pods that admission may change or refuse, and for no others.

    Fields that may be missing are tested with `has`: an error would refuse the pod. So would a cost above the
    API server's limit, and a pod may bring thousands of annotations: most of them cost one comparison.
    """
    own = f"{names.DOMAIN}/"
    others = [name for name in sorted(dialects.resources) if not name.startswith(own)]
    resource = _any_of("name", prefixes=[own], whole=others)
    asks = " || ".join(
        f"has(c.resources.{kind}) && c.resources.{kind}.exists(name, {resource})"
        for kind in ("limits", "requests")
    )
    containers = " || ".join(
        f"has(object.spec.{kind}) && object.spec.{kind}.exists(c, has(c.resources) && ({asks}))"
        for kind in ("containers", "initContainers")
    )
    forged = _any_of("key", prefixes=names.SERVER_ONLY_PREFIXES, whole=names.SERVER_ONLY)
    annotations = (
        "has(object.metadata.annotations) && "
        f"object.metadata.annotations.exists(key, key.contains('{own}') && ({forged}))"
    )
    return f"{containers} || {annotations}"


def _any_of(variable: str, *, prefixes: Iterable[str], whole: Iterable[str]) -> str:
    return " || ".join(
        [
            *(f"{variable}.startsWith('{prefix}')" for prefix in prefixes),
            *(f"{variable} == '{name}'" for name in whole),
        ]
    )
