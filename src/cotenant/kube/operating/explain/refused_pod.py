"""Explains why a workload's pods are not created, from what the API server answered to its controller."""

from __future__ import annotations

import re

from cotenant.kube.admission.configuration import WEBHOOK
from cotenant.kube.operating.explain.explanation import Explanation

_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<asked>.*), used: (?P<used>.*), limited: (?P<limit>.*)"
)
_NEEDS = re.compile(r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.*)")
_DENIED = re.compile(r"admission webhook \"(?P<webhook>[^\"]+)\" denied the request: (?P<why>.*)", re.DOTALL)
_POLICY = re.compile(
    r"ValidatingAdmissionPolicy '(?P<policy>[^']+)' with binding '[^']+' denied request: (?P<why>.*)",
    re.DOTALL,
)
_CALLING = re.compile(r"failed calling webhook \"(?P<webhook>[^\"]+)\":(?P<why>.*)", re.DOTALL)


def explain_refusal(target: str, namespace: str, message: str) -> Explanation:
    """Explains the message of the controller's event `FailedCreate`."""
    message = " ".join(message.split())
    quota = _QUOTA.search(message)
    if quota is not None:
        return _quota(target, namespace, quota)
    calling = _CALLING.search(message)
    if calling is not None:
        return _webhook(target, calling)
    denied = _DENIED.search(message) or _POLICY.search(message)
    if denied is not None:
        who = denied.groupdict().get("policy") or denied["webhook"]
        return Explanation(
            target,
            "refused",
            "denied",
            f"its pods are not created, since {who} refuses them: {denied['why'].strip()}",
            "correct the pod template; its controller tries again by itself",
            data={"message": message},
        )
    needs = _NEEDS.search(message)
    if needs is not None:
        return Explanation(
            target,
            "refused",
            "quota",
            f"its pods are not created, since quota {needs['quota']} wants every pod to say {needs['what']}",
            "add that to the pod template; its controller tries again by itself",
            data={"message": message},
        )
    return Explanation(
        target,
        "refused",
        "not-created",
        f"its pods are not created: {message}",
        f"kubectl get events -n {namespace} --field-selector reason=FailedCreate",
        data={"message": message},
    )


def _quota(target: str, namespace: str, found: re.Match[str]) -> Explanation:
    asked, used, limit = (_amounts(found[name]) for name in ("asked", "used", "limit"))
    parts = [
        f"{amount} of {name} asked, {used.get(name, '0')} of {limit[name]} in use"
        for name, amount in asked.items()
        if name in limit
    ]
    return Explanation(
        target,
        "refused",
        "quota",
        f"its pods are not created, since the quota {found['quota']} of namespace {namespace} is used up: "
        f"{'; '.join(parts) or found[0]}",
        f"end pods of namespace {namespace}, ask for less, or let an administrator raise the quota: "
        f"kubectl edit quota -n {namespace} {found['quota']}",
        data={"quota": found["quota"], "asked": asked, "used": used, "limit": limit, "message": found[0]},
    )


def _amounts(text: str) -> dict[str, str]:
    """Reads `requests.cotenant.dev/gpu-memory=16Gi,pods=1`."""
    pairs = (part.strip().partition("=") for part in text.split(","))
    return {name: amount for name, equals, amount in pairs if equals}


def _webhook(target: str, found: re.Match[str]) -> Explanation:
    name, why = found["webhook"], found["why"].strip()
    if name != WEBHOOK:
        return Explanation(
            target,
            "refused",
            "other-webhook",
            f"its pods are not created, since {name}, a webhook of others, does not answer: {why}",
            "ask those who run that webhook",
            data={"message": found[0]},
        )
    return Explanation(
        target,
        "refused",
        "webhook-down",
        f"its pods are not created, since Cotenant's webhook does not answer: {why}",
        "see whether Cotenant's server runs: kubectl get pods -A -l app.kubernetes.io/name=cotenant, or "
        "cotenant doctor --cluster; the controller tries again by itself",
        data={"message": found[0]},
    )
