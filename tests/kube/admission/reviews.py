"""AdmissionReviews as the API server sends them, and what is read of an answer."""

from __future__ import annotations

import base64
import json
from typing import Any

from kube.builders import applied

from cotenant.kube.admission.review import Answer

PODS = {"group": "", "version": "v1", "resource": "pods"}


def asked(pod: Any, **request: Any) -> dict[str, Any]:
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": PODS,
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": PODS,
            "name": "it",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            **request,
        },
    }


def response(answer: Answer) -> dict[str, Any]:
    assert answer.code == 200, answer.body
    envelope = json.loads(answer.body)
    assert (envelope["kind"], envelope["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    said: dict[str, Any] = envelope["response"]
    assert isinstance(said["allowed"], bool)
    assert ("patch" in said) == ("patchType" in said)
    return said


def patched(pod: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """The pod as the API server goes on with it."""
    assert said["allowed"]
    if "patch" not in said:
        return pod
    assert said["patchType"] == "JSONPatch"
    result: dict[str, Any] = applied(pod, json.loads(base64.b64decode(said["patch"], validate=True)))
    return result
