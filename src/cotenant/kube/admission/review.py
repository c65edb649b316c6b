"""Answers an AdmissionReview: bytes in, bytes out, for any bytes.

The same pod always gets the same answer, and no state is kept, so dry runs and repeated calls
(`reinvocationPolicy: IfNeeded`) need no special treatment. Keys of the envelope are read in upper or lower
case; the pod in it comes from the API server and has Kubernetes' spelling.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.mutation import mutate
from cotenant.kube.admission.settings import AdmissionSettings

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

Result = Literal["mutated", "unchanged", "refused", "malformed"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The HTTP response; `result` is for the metrics."""

    result: Result
    body: bytes
    code: int = 200
    """400 if the request is not an AdmissionReview. A refused pod is code 200 with the reason in the body."""

    @property
    def content_type(self) -> str:
        return "application/json" if self.code == 200 else "text/plain"


class _Malformed(Exception):
    """Not an AdmissionReview; the message says why."""


def review(body: bytes, admission: AdmissionSettings, dialects: Dialects) -> Answer:
    """Never raises: a body that is not an AdmissionReview gets code 400 and the reason."""
    try:
        uid, request = _request(body)
        return _decided(uid, request, admission, dialects)
    except _Malformed as problem:
        return Answer("malformed", f"{problem}\n".encode(), 400)
    except RecursionError:
        return Answer("malformed", b"body: nested too deeply\n", 400)


def _request(body: bytes) -> tuple[str, Mapping[str, Any]]:
    try:
        envelope = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _Malformed(f"body: not JSON: {error}") from None
    given = _folded(envelope, "body")
    if given.get("kind") != KIND or given.get("apiversion") != API_VERSION:
        raise _Malformed(f"body: not an {KIND} of {API_VERSION}")
    request = _folded(given.get("request"), "request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise _Malformed("request.uid: a text is needed")
    return uid, request


def _folded(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Malformed(f"{where}: this must be an object")
    folded: dict[str, Any] = {}
    for key, each in value.items():
        if folded.setdefault(key.lower(), each) is not each:
            raise _Malformed(f"{where}: {key!a} stands there twice, in different cases")
    return folded


def _decided(
    uid: str, request: Mapping[str, Any], admission: AdmissionSettings, dialects: Dialects
) -> Answer:
    if not _creates_a_pod(request):
        return _said("unchanged", uid, {"allowed": True})
    pod = request.get("object")
    if not isinstance(pod, dict):
        return _refused(uid, 400, "BadRequest", "request.object: a pod is needed")
    try:
        mutation = mutate(pod, admission, dialects)
    except BadInput as problem:
        return _refused(uid, 422, "Invalid", str(problem))
    response: dict[str, Any] = {"allowed": True}
    if mutation.warnings:
        response["warnings"] = mutation.warnings
    if not mutation.patch:
        return _said("unchanged", uid, response)
    patch = base64.b64encode(msgspec.json.encode(mutation.patch)).decode()
    return _said("mutated", uid, {**response, "patchType": "JSONPatch", "patch": patch})


def _creates_a_pod(request: Mapping[str, Any]) -> bool:
    """Not a binding, an eviction or an ephemeral container of one; those are not ours to change."""
    if request.get("operation") != "CREATE" or request.get("subresource"):
        return False
    resource = _folded(request.get("resource") or {}, "request.resource")
    return (resource.get("group") or "", resource.get("version"), resource.get("resource")) == (
        "",
        "v1",
        "pods",
    )


def _refused(uid: str, code: int, reason: str, message: str) -> Answer:
    status = {"status": "Failure", "message": message, "reason": reason, "code": code}
    return _said("refused", uid, {"allowed": False, "status": status})


def _said(result: Result, uid: str, response: Mapping[str, Any]) -> Answer:
    envelope = {"apiVersion": API_VERSION, "kind": KIND, "response": {"uid": uid, **response}}
    return Answer(result, msgspec.json.encode(envelope))
