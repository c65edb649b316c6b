"""The webhook: its certificates, and whether the API server asks it as it should."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from cotenant.kube.admission.configuration import NAME, webhook_configuration
from cotenant.kube.certificates import certificates
from cotenant.kube.certificates.certificates import KeyPair
from cotenant.kube.certificates.keeper import SECRET
from cotenant.kube.certificates.renewal import CertificateSet, from_data, is_signed
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, FIX, WARNING, Finding, restore

_LATE = 1 / 4
"""Of a certificate's life: the server renews it when a third is left, so by then it does not."""


def certificate(facts: Facts) -> Iterator[Finding]:
    target = f"secret {facts.installed.namespace}/{SECRET}"
    if facts.certificates is None:
        if not facts.is_unread(f"secret {SECRET}"):
            yield Finding(
                "no-certificates",
                target,
                ERROR,
                f"the {target} is not there",
                "the API server and kube-scheduler cannot talk to the server",
                f"the server makes it: {_log(facts)}",
            )
        return
    kept = from_data(facts.certificates)
    for what, pair in (
        ("serving", kept.serving),
        ("scheduler", kept.scheduler),
        ("authority", kept.authority),
    ):
        late = _is_late(what, pair.certificate, facts)
        problem = _problem(what, pair, kept, facts) or late
        if problem is not None:
            yield Finding(
                "certificate",
                f"{target}: {what}",
                WARNING if problem is late else ERROR,
                f"the {what} certificate in the {target} {problem}",
                "the API server or kube-scheduler is refused, or will be",
                f"the server renews it within a minute: if this stays, {_log(facts)}",
            )


def _log(facts: Facts) -> str:
    return f"kubectl logs -n {facts.installed.namespace} -l app.kubernetes.io/component=server"


def _problem(what: str, pair: KeyPair, kept: CertificateSet, facts: Facts) -> str | None:
    found = certificates.read(pair.certificate)
    if found is None:
        return "is damaged or missing"
    if not certificates.belongs(pair.key, found):
        return "does not belong to the key beside it"
    validity = certificates.validity(found)
    if facts.now >= validity.not_after:
        return f"has expired at {validity.not_after}"
    if facts.now < validity.not_before:
        return f"is not good before {validity.not_before}"
    if what != "authority" and not is_signed(pair.certificate, kept.bundle):
        return "is not signed by the authority beside it"
    missing = _called(facts) - set(certificates.names_of(found)) if what == "serving" else set()
    return f"is not for {', '.join(sorted(missing))}" if missing else None


def _called(facts: Facts) -> set[str]:
    """By what the API server and kube-scheduler call the server."""
    settings = facts.installed.settings
    services = (settings.webhook.service, settings.extender.service)
    return {f"{service}.{facts.installed.namespace}.svc" for service in services}


def _is_late(what: str, pem: bytes, facts: Facts) -> str | None:
    """An authority has a successor long before its end."""
    found = certificates.read(pem)
    if found is None or what == "authority":
        return None
    validity = certificates.validity(found)
    left = (validity.not_after - facts.now) / (validity.not_after - validity.not_before)
    return f"has only {validity.not_after - facts.now} left and is not renewed" if left < _LATE else None


def webhook(facts: Facts) -> Iterator[Finding]:
    found, target = facts.installed.webhook, f"mutatingwebhookconfiguration {NAME}"
    if facts.is_unread("webhook"):
        return
    if found is None:
        restorable = facts.certificates is not None and facts.knows_installed
        yield Finding(
            "webhook-missing",
            target,
            ERROR,
            f"there is no {target}",
            "GPU pods are not prepared: they get no slot, and no card",
            FIX if restorable else restore(facts.installed.namespace, "webhook"),
            "webhook" if restorable else None,
        )
        return
    altered = altered_fields(facts)
    if altered:
        restorable = facts.knows_installed
        yield Finding(
            "webhook-altered",
            target,
            ERROR,
            f"the {target} is not as it was installed: {', '.join(altered)}",
            "GPU pods may pass without it, or other pods wait for it",
            FIX if restorable else restore(facts.installed.namespace, "webhook"),
            "webhook" if restorable else None,
        )
    if facts.certificates is None:
        return
    wanted = base64.b64encode(from_data(facts.certificates).bundle).decode()
    if any(
        (each.get("clientConfig") or {}).get("caBundle") != wanted for each in found.get("webhooks") or ()
    ):
        yield Finding(
            "ca-bundle",
            target,
            ERROR,
            f"the {target} trusts another authority than the one in the Secret {SECRET}",
            "the API server does not trust the webhook: no GPU pod can be created",
            FIX,
            "ca-bundle",
        )


def altered_fields(facts: Facts) -> list[str]:
    """Where the webhook's configuration differs; whom it is asked about, only if settings are known."""
    found = (facts.installed.webhook or {}).get("webhooks") or []
    settings = facts.installed.settings
    (wanted,) = webhook_configuration(settings, settings.dialects)["webhooks"]
    if [each.get("name") for each in found] != [wanted["name"]]:
        return ["webhooks"]
    known = facts.installed.settings_known
    return [
        key
        for key, value in wanted.items()
        if key != "clientConfig" and (known or key != "matchConditions") and found[0].get(key) != value
    ] + [
        f"clientConfig.service.{key}"
        for key, value in wanted["clientConfig"]["service"].items()
        if ((found[0].get("clientConfig") or {}).get("service") or {}).get(key) != value
    ]
