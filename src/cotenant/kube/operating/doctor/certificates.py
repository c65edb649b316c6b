"""Checks the certificates in the Secret of the servers. The servers create and renew them."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.kube.certificates import certificates
from cotenant.kube.certificates.keeper import SECRET
from cotenant.kube.certificates.key_pair import KeyPair
from cotenant.kube.certificates.renewal import CertificateSet, from_data, is_signed
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import server_log
from cotenant.kube.operating.doctor.subject import ClusterSubject

_LATE = 1 / 4
"""Of a certificate's life: the server renews it when a third is left, so by then it does not."""

NO_CERTIFICATES = Kind(
    "no-certificates", ERROR, "the API server and kube-scheduler cannot talk to the server"
)
CERTIFICATE = Kind(
    "certificate", ERROR, "TLS between the API server, kube-scheduler and the server fails, or soon will"
)


def stored(facts: Facts) -> Iterator[Finding]:
    where = f"{facts.installed.namespace}/{SECRET}"
    if facts.certificates is None:
        if not facts.is_unread(f"secret {SECRET}"):
            yield NO_CERTIFICATES.at(
                f"secret {where}",
                f"the Secret {where} does not exist",
                f"the server creates it; if it does not, read its log: {server_log(facts)}",
            )
        return
    kept = from_data(facts.certificates)
    for what, pair in (
        ("serving", kept.serving),
        ("scheduler", kept.scheduler),
        ("authority", kept.authority),
    ):
        late = _late(what, pair.certificate, facts)
        problem = _problem(what, pair, kept, facts) or late
        if problem is not None:
            yield CERTIFICATE.at(
                f"secret {where}: {what}",
                f"the {what} certificate in the Secret {where} {problem}",
                f"the server renews it within a minute; if it does not, read its log: {server_log(facts)}",
                severity=WARNING if problem is late else ERROR,
            )


def _problem(what: str, pair: KeyPair, kept: CertificateSet, facts: Facts) -> str | None:
    found = certificates.read(pair.certificate)
    if found is None:
        return "is missing or damaged"
    if not certificates.belongs(pair.key, found):
        return "does not belong to the key beside it"
    validity = certificates.validity(found)
    if facts.now >= validity.not_after:
        return f"has expired at {validity.not_after}"
    if facts.now < validity.not_before:
        return f"is not valid before {validity.not_before}"
    if what != "authority" and not is_signed(pair.certificate, kept.bundle):
        return "is not signed by the authority beside it"
    missing = _server_names(facts) - set(certificates.names_of(found)) if what == "serving" else set()
    return f"is not for {', '.join(sorted(missing))}" if missing else None


def _server_names(facts: Facts) -> set[str]:
    """The names by which the API server and kube-scheduler call the server."""
    settings = facts.installed.settings
    services = (settings.webhook.service, settings.extender.service)
    return {f"{service}.{facts.installed.namespace}.svc" for service in services}


def _late(what: str, pem: bytes, facts: Facts) -> str | None:
    """Why a certificate should have been renewed by now. An authority has a successor long before its end."""
    found = certificates.read(pem)
    if found is None or what == "authority":
        return None
    validity = certificates.validity(found)
    left = (validity.not_after - facts.now) / (validity.not_after - validity.not_before)
    return f"expires in {validity.not_after - facts.now} and has not been renewed" if left < _LATE else None


SUBJECT = ClusterSubject(checks=(stored,))
