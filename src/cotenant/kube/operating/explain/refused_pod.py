"""Explains why a workload's pods are not created, from what the API server answered to its controller."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cotenant.core.quantity import parse_quantity
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


@dataclass(frozen=True)
class Quota:
    """What a ResourceQuota limits and what is used of it, by resource, as the API server writes it."""

    hard: Mapping[str, str]
    used: Mapping[str, str]


def explain_refusal(
    target: str, namespace: str, message: str, quotas: Mapping[str, Quota] | None = None
) -> Explanation:
    """Explains the message of the controller's event `FailedCreate`.

    `quotas`: those of the namespace as they are now, by name: an event keeps the figures of its time. None if
    they cannot be read.
    """
    message = " ".join(message.split())
    quota = _QUOTA.search(message)
    if quota is not None:
        return _quota(target, namespace, quota, _now(quota["quota"], quotas))
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


def _now(name: str, quotas: Mapping[str, Quota] | None) -> Quota | None:
    """Returns the quota as it is now, empty if it was deleted; None if that is not known."""
    return None if quotas is None else quotas.get(name, Quota({}, {}))


def _quota(target: str, namespace: str, found: re.Match[str], now: Quota | None) -> Explanation:
    asked, used, limit = (_amounts(found[name]) for name in ("asked", "used", "limit"))
    if now is not None:
        used = {name: now.used.get(name, "0") for name in asked}
        limit = {name: now.hard[name] for name in asked if name in now.hard}
    data = {"quota": found["quota"], "asked": asked, "used": used, "limit": limit, "message": found[0]}
    parts = [
        f"{amount} of {name} asked, {used.get(name, '0')} of {limit[name]} in use"
        for name, amount in asked.items()
        if name in limit
    ]
    if now is not None and all(_has_room(asked[name], used[name], limit[name]) for name in limit):
        return Explanation(
            target,
            "refused",
            "quota-has-room",
            f"its pods were refused by the quota {found['quota']} of namespace {namespace}, which has room "
            f"now: {'; '.join(parts) or 'it does not limit them any more'}",
            "wait: its controller tries again by itself, within 17 minutes; a Deployment at once with: "
            f"kubectl rollout restart -n {namespace} deployment",
            data=data,
        )
    return Explanation(
        target,
        "refused",
        "quota",
        f"its pods are not created, since the quota {found['quota']} of namespace {namespace} is used up: "
        f"{'; '.join(parts) or found[0]}",
        f"end pods of namespace {namespace}, ask for less, or let an administrator raise the quota: "
        f"kubectl edit quota -n {namespace} {found['quota']}",
        data=data,
    )


def _has_room(asked: str, used: str, limit: str) -> bool:
    wanted, taken, most = (parse_quantity(each) for each in (asked, used, limit))
    return None not in {wanted, taken, most} and (wanted or 0) + (taken or 0) <= (most or 0)


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
