"""The server's certificates as they are kept together, and what of them must be made anew: a pure decision.

Whoever trusts the bundle trusts, at every moment, what is served. A new authority is therefore in the bundle
long before it signs anything, and the old one stays in it until it ends by itself:

    a third of its life left    a successor is made, and is in the bundle
    a sixth left                the successor signs from now on; the old one is trusted, and signs no more

A certificate is renewed, by whichever authority signs then, when a third of its own life is left. What is
damaged, ended or not yet valid is made anew at once: it could do no good.
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
from cotenant.kube.certificates.certificates import Pair

SCHEDULER = "system:cotenant-scheduler"
"""Whom kube-scheduler is to the extender."""
NOTHING = Pair(b"", b"")
BUNDLE_KEY = "bundle.crt"
"""Made of the others, for those who mount the Secret: all that is to be trusted, in one file."""
_PAIRS = {
    "authority": ("ca.crt", "ca.key"),
    "serving": ("tls.crt", "tls.key"),
    "scheduler": ("scheduler.crt", "scheduler.key"),
    "successor": ("next-ca.crt", "next-ca.key"),
}
_PREVIOUS_KEY = "previous-ca.crt"
KEYS = (BUNDLE_KEY, _PREVIOUS_KEY, *(key for pair in _PAIRS.values() for key in pair))
"""All that we write into the Secret."""

State = Literal["good", "due", "lacking", "bad"]
"""`due` and `lacking` (some name) still serve until there is something better; `bad` does not."""


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """All that the Secret holds; what it does not hold is NOTHING."""

    authority: Pair = NOTHING
    serving: Pair = NOTHING
    scheduler: Pair = NOTHING
    successor: Pair = NOTHING
    previous: bytes = b""
    """Certificates of authorities that sign no more, but are still trusted."""

    @property
    def bundle(self) -> bytes:
        """What a client is to trust."""
        return self.authority.certificate + self.successor.certificate + self.previous


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the settings ask of the certificates."""

    names: tuple[str, ...]
    """DNS names and addresses of the servers."""
    lifetime: timedelta
    authority_lifetime: timedelta
    settle: timedelta
    """How long a successor is at least in the bundle before it signs, so that every client has seen it."""


def from_data(data: Mapping[str, str]) -> CertificateSet:
    """Of a Secret's data. What is no base64 is nothing; what stands around certificates is left out."""
    pairs = {name: Pair(_certificates(data, crt), _decoded(data, key)) for name, (crt, key) in _PAIRS.items()}
    return CertificateSet(**pairs, previous=_certificates(data, _PREVIOUS_KEY))


def to_data(kept: CertificateSet) -> dict[str, str]:
    """For a Secret's data; what there is nothing of is left out."""
    texts = {BUNDLE_KEY: kept.bundle, _PREVIOUS_KEY: kept.previous}
    for name, (crt, key) in _PAIRS.items():
        pair: Pair = getattr(kept, name)
        texts |= {crt: pair.certificate, key: pair.key}
    return {key: base64.b64encode(text).decode() for key, text in texts.items() if text}


def renewed(kept: CertificateSet, wanted: Wanted, now: datetime) -> CertificateSet:
    """The same set if all is well, which what comes out of it is for some time."""
    kept = _with_authority(kept, wanted, now)
    states = (serving_state(kept, wanted, now), _scheduler_state(kept, now))
    if "bad" in states and not _signs(kept.authority, now):
        kept = _succeeded(kept)  # what it signs is not trusted everywhere yet, which is better than nothing
    if not _signs(kept.authority, now):
        return kept
    if states[0] != "good":
        names = wanted.names
        if states[0] == "lacking":  # another server, with other settings, may want those that are there
            names = tuple(dict.fromkeys((*names, *_names(kept.serving))))
        serving = certificates.issue_serving(kept.authority, names, now, wanted.lifetime)
        kept = replace(kept, serving=serving)
    if states[1] != "good":
        scheduler = certificates.issue_client(kept.authority, SCHEDULER, now, wanted.lifetime)
        kept = replace(kept, scheduler=scheduler)
    return kept


def serving_state(kept: CertificateSet, wanted: Wanted, now: datetime) -> State:
    """A set whose serving certificate is not `bad` can be served."""
    state = _state(kept.serving, kept, now)
    if state == "good" and not set(wanted.names) <= set(_names(kept.serving)):
        return "lacking"
    return state


def _scheduler_state(kept: CertificateSet, now: datetime) -> State:
    certificate = certificates.read(kept.scheduler.certificate)
    if certificate is None or certificates.user_of(certificate) != SCHEDULER:
        return "bad"
    return _state(kept.scheduler, kept, now)


def _state(pair: Pair, kept: CertificateSet, now: datetime) -> State:
    certificate = certificates.read(pair.certificate)
    if certificate is None or not certificates.belongs(pair.key, certificate):
        return "bad"
    term = certificates.term(certificate)
    if not term.holds(now) or not is_signed(pair.certificate, kept.bundle):
        return "bad"
    return "due" if term.left(now) <= 1 / 3 else "good"


def is_signed(certificate: bytes, bundle: bytes) -> bool:
    """Whether someone who trusts the bundle trusts the certificate."""
    leaf = certificates.read(certificate)
    return leaf is not None and any(
        certificates.signed_by(leaf, authority) for authority in certificates.read_all(bundle)
    )


def _with_authority(kept: CertificateSet, wanted: Wanted, now: datetime) -> CertificateSet:
    kept = replace(kept, previous=_still_trusted(kept.previous, now))
    if not _signs(kept.successor, now):
        kept = replace(kept, successor=NOTHING)
    current = _authority(kept.authority.certificate, now)
    if current is None:  # nobody trusts it, so nothing is lost by taking another at once
        kept = replace(kept, authority=NOTHING)
        return _succeeded(kept if kept.successor != NOTHING else _with_successor(kept, wanted, now))
    left = certificates.term(current).left(now)
    if _signs(kept.authority, now) and left > 1 / 3:
        return kept
    if kept.successor == NOTHING:
        return _with_successor(kept, wanted, now)
    if left <= 1 / 6 or not _signs(kept.authority, now):
        successor = _authority(kept.successor.certificate, now)
        if successor is not None and now >= certificates.term(successor).made + wanted.settle:
            return _succeeded(kept)
    return kept


def _with_successor(kept: CertificateSet, wanted: Wanted, now: datetime) -> CertificateSet:
    return replace(kept, successor=certificates.new_authority(now, wanted.authority_lifetime))


def _succeeded(kept: CertificateSet) -> CertificateSet:
    previous = kept.authority.certificate + kept.previous
    return replace(kept, authority=kept.successor, successor=NOTHING, previous=previous)


def _authority(certificate: bytes, now: datetime) -> x509.Certificate | None:
    """If it is one, and can be trusted now."""
    found = certificates.read(certificate)
    if found is None or not certificates.is_authority(found) or not certificates.term(found).holds(now):
        return None
    return found


def _signs(pair: Pair, now: datetime) -> bool:
    found = _authority(pair.certificate, now)
    return found is not None and certificates.can_sign(pair.key, found)


def _still_trusted(previous: bytes, now: datetime) -> bytes:
    found = certificates.read_all(previous)
    return b"".join(
        certificates.pem(each)
        for each in found
        if certificates.is_authority(each) and certificates.term(each).holds(now)
    )


def _names(pair: Pair) -> tuple[str, ...]:
    certificate = certificates.read(pair.certificate)
    return () if certificate is None else certificates.names_of(certificate)


def _certificates(data: Mapping[str, str], key: str) -> bytes:
    return b"".join(certificates.pem(each) for each in certificates.read_all(_decoded(data, key)))


def _decoded(data: Mapping[str, str], key: str) -> bytes:
    try:
        return base64.b64decode(data.get(key, ""), validate=True)
    except (binascii.Error, ValueError):
        return b""
