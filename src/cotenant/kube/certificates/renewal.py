"""Decides which certificates of server and agents must be renewed, and renews them: pure but for random keys.

A client that trusts the bundle must trust, at every moment, the certificate that is served. So a new
authority is in the bundle long before it signs anything, and the old one stays in it until it expires:

    a third of its lifetime left    a successor is made and added to the bundle
    a sixth left                    the successor signs; the old one is trusted, but no longer signs

A certificate is renewed, by the authority that signs at that time, when a third of its own lifetime is left.
A certificate that is damaged, expired or not yet valid is replaced at once.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from cryptography import x509

from cotenant.kube.certificates import certificates
from cotenant.kube.certificates.key_pair import KeyPair

SCHEDULER = "system:cotenant-scheduler"
"""The user name with which kube-scheduler authenticates to the extender."""
NOTHING = KeyPair(b"", b"")
BUNDLE_KEY = "bundle.crt"
"""Derived from the others, for pods that mount the Secret: every trusted authority in one file."""
_PAIRS = {
    "authority": ("ca.crt", "ca.key"),
    "serving": ("tls.crt", "tls.key"),
    "scheduler": ("scheduler.crt", "scheduler.key"),
    "agent": ("agent.crt", "agent.key"),
    "successor": ("next-ca.crt", "next-ca.key"),
}
_PREVIOUS_KEY = "previous-ca.crt"
KEYS = (BUNDLE_KEY, _PREVIOUS_KEY, *(key for pair in _PAIRS.values() for key in pair))
"""Every key of the Secret that we write."""

State = Literal["good", "due", "lacking", "bad"]
"""A certificate that is `due` for renewal or `lacking` a name is served until it is replaced; a `bad` one is
not served."""


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """The certificates in the Secret; NOTHING for those that it does not have."""

    authority: KeyPair = NOTHING
    serving: KeyPair = NOTHING
    scheduler: KeyPair = NOTHING
    agent: KeyPair = NOTHING
    """What every agent serves: one certificate and one key for all of them."""
    successor: KeyPair = NOTHING
    previous: bytes = b""
    """Certificates of authorities that no longer sign, but are still trusted."""

    @property
    def bundle(self) -> bytes:
        """The CA bundle: every authority that a client must trust."""
        return self.authority.certificate + self.successor.certificate + self.previous


@dataclass(frozen=True, slots=True)
class CertificatePolicy:
    """Names and lifetimes that the settings require of the certificates."""

    names: tuple[str, ...]
    """DNS names and IP addresses of the servers."""
    agent_names: tuple[str, ...]
    """DNS names of the agents."""
    lifetime: timedelta
    authority_lifetime: timedelta
    settle: timedelta
    """The least time that a successor is in the bundle before it signs, so that every client has seen it."""


def from_data(data: Mapping[str, str]) -> CertificateSet:
    """Reads a Secret's data. A value that is not base64 counts as missing; text around certificates is
    dropped.
    """
    pairs = {
        name: KeyPair(_certificates(data, crt), _decoded(data, key)) for name, (crt, key) in _PAIRS.items()
    }
    return CertificateSet(**pairs, previous=_certificates(data, _PREVIOUS_KEY))


def to_data(kept: CertificateSet) -> dict[str, str]:
    """Writes a Secret's data, without the certificates that are missing."""
    texts = {BUNDLE_KEY: kept.bundle, _PREVIOUS_KEY: kept.previous}
    for name, (crt, key) in _PAIRS.items():
        pair: KeyPair = getattr(kept, name)
        texts |= {crt: pair.certificate, key: pair.key}
    return {key: base64.b64encode(text).decode() for key, text in texts.items() if text}


def renewed(kept: CertificateSet, policy: CertificatePolicy, now: datetime) -> CertificateSet:
    """Returns the set with everything replaced that is due; the same set if nothing is."""
    kept = _with_authority(kept, policy, now)
    states = (serving_state(kept, policy, now), _scheduler_state(kept, now))
    agent = _named_state(kept.agent, policy.agent_names, kept, now)
    if "bad" in states and not _signs(kept.authority, now):
        kept = _succeeded(kept)  # not trusted everywhere yet, but better than no certificate
    if not _signs(kept.authority, now):
        return kept
    if states[0] != "good":
        kept = replace(kept, serving=_issued(kept.serving, states[0], policy.names, kept, policy, now))
    if states[1] != "good":
        scheduler = certificates.issue_client(kept.authority, SCHEDULER, now, policy.lifetime)
        kept = replace(kept, scheduler=scheduler)
    if agent != "good":
        kept = replace(kept, agent=_issued(kept.agent, agent, policy.agent_names, kept, policy, now))
    return kept


def _issued(
    before: KeyPair,
    state: State,
    names: tuple[str, ...],
    kept: CertificateSet,
    policy: CertificatePolicy,
    now: datetime,
) -> KeyPair:
    if state == "lacking":  # another server, with other settings, may need the names that are there
        names = tuple(dict.fromkeys((*names, *_names(before))))
    return certificates.issue_serving(kept.authority, names, now, policy.lifetime)


def serving_state(kept: CertificateSet, policy: CertificatePolicy, now: datetime) -> State:
    """Returns the state of the server's certificate. It can be served unless it is `bad`."""
    return _named_state(kept.serving, policy.names, kept, now)


def _named_state(pair: KeyPair, names: tuple[str, ...], kept: CertificateSet, now: datetime) -> State:
    state = _state(pair, kept, now)
    if state == "good" and not set(names) <= set(_names(pair)):
        return "lacking"
    return state


def _scheduler_state(kept: CertificateSet, now: datetime) -> State:
    certificate = certificates.read(kept.scheduler.certificate)
    if certificate is None or certificates.user_of(certificate) != SCHEDULER:
        return "bad"
    return _state(kept.scheduler, kept, now)


def _state(pair: KeyPair, kept: CertificateSet, now: datetime) -> State:
    certificate = certificates.read(pair.certificate)
    if certificate is None or not certificates.belongs(pair.key, certificate):
        return "bad"
    validity = certificates.validity(certificate)
    if not validity.contains(now) or not is_signed(pair.certificate, kept.bundle):
        return "bad"
    return "due" if validity.fraction_left(now) <= 1 / 3 else "good"


def is_signed(certificate: bytes, bundle: bytes) -> bool:
    """Whether a client that trusts the bundle trusts the certificate."""
    leaf = certificates.read(certificate)
    return leaf is not None and any(
        certificates.signed_by(leaf, authority) for authority in certificates.read_all(bundle)
    )


def _with_authority(kept: CertificateSet, policy: CertificatePolicy, now: datetime) -> CertificateSet:
    kept = replace(kept, previous=_still_trusted(kept.previous, now))
    if not _signs(kept.successor, now):
        kept = replace(kept, successor=NOTHING)
    current = _authority(kept.authority.certificate, now)
    if current is None:  # no client trusts it, so nothing is lost by replacing it at once
        kept = replace(kept, authority=NOTHING)
        return _succeeded(kept if kept.successor != NOTHING else _with_successor(kept, policy, now))
    left = certificates.validity(current).fraction_left(now)
    if _signs(kept.authority, now) and left > 1 / 3:
        return kept
    if kept.successor == NOTHING:
        return _with_successor(kept, policy, now)
    if left <= 1 / 6 or not _signs(kept.authority, now):
        successor = _authority(kept.successor.certificate, now)
        if successor is not None and now >= certificates.validity(successor).issued + policy.settle:
            return _succeeded(kept)
    return kept


def _with_successor(kept: CertificateSet, policy: CertificatePolicy, now: datetime) -> CertificateSet:
    return replace(kept, successor=certificates.new_authority(now, policy.authority_lifetime))


def _succeeded(kept: CertificateSet) -> CertificateSet:
    previous = kept.authority.certificate + kept.previous
    return replace(kept, authority=kept.successor, successor=NOTHING, previous=previous)


def _authority(certificate: bytes, now: datetime) -> x509.Certificate | None:
    """Parses the certificate of an authority; None if it is not one, or is not valid now."""
    found = certificates.read(certificate)
    if (
        found is None
        or not certificates.is_authority(found)
        or not certificates.validity(found).contains(now)
    ):
        return None
    return found


def _signs(pair: KeyPair, now: datetime) -> bool:
    found = _authority(pair.certificate, now)
    return found is not None and certificates.can_sign(pair.key, found)


def _still_trusted(previous: bytes, now: datetime) -> bytes:
    found = certificates.read_all(previous)
    return b"".join(
        certificates.pem(each)
        for each in found
        if certificates.is_authority(each) and certificates.validity(each).contains(now)
    )


def _names(pair: KeyPair) -> tuple[str, ...]:
    certificate = certificates.read(pair.certificate)
    return () if certificate is None else certificates.names_of(certificate)


def _certificates(data: Mapping[str, str], key: str) -> bytes:
    return b"".join(certificates.pem(each) for each in certificates.read_all(_decoded(data, key)))


def _decoded(data: Mapping[str, str], key: str) -> bytes:
    try:
        return base64.b64decode(data.get(key, ""), validate=True)
    except (binascii.Error, ValueError):
        return b""
