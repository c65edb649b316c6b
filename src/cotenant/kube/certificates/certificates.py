"""Making certificates, and telling whether one is good: all depends on the arguments, and keys on chance.

All keys are of the curve P-256: made in a millisecond, and taken by everything that speaks TLS 1.2 or later.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = timedelta(hours=1)
"""A certificate begins so long before it is made: clocks differ, and some jump."""


@dataclass(frozen=True, slots=True)
class Pair:
    """PEM. The key is never shown."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Term:
    """When a certificate is good."""

    begins: datetime
    ends: datetime

    def holds(self, now: datetime) -> bool:
        return self.begins <= now < self.ends

    def left(self, now: datetime) -> float:
        """The part of its life that is still to come; it counts from when it was made."""
        return (self.ends - now) / (self.ends - self.made)

    @property
    def made(self) -> datetime:
        return self.begins + BACKDATED


def new_authority(now: datetime, lifetime: timedelta) -> Pair:
    """Each has a name of its own, so that nobody takes one for another of the same name."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"cotenant-authority-{serial & 0xFFFFFFFF:08x}")
    usage = _usage(signs_certificates=True)
    made = (
        _builder(name, name, key.public_key(), serial, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(made, key)


def issue_serving(authority: Pair, names: Sequence[str], now: datetime, lifetime: timedelta) -> Pair:
    """For a server that is called by these DNS names and IP addresses; ends no later than the authority."""
    called = x509.SubjectAlternativeName([_general(name) for name in names])
    return _issue(authority, names[0], ExtendedKeyUsageOID.SERVER_AUTH, called, now, lifetime)


def issue_client(authority: Pair, user: str, now: datetime, lifetime: timedelta) -> Pair:
    return _issue(authority, user, ExtendedKeyUsageOID.CLIENT_AUTH, None, now, lifetime)


def read(certificate: bytes) -> x509.Certificate | None:
    """None if it is damaged, or more than one."""
    found = read_all(certificate)
    return found[0] if len(found) == 1 else None


def read_all(certificates: bytes) -> list[x509.Certificate]:
    """None of them if any is damaged."""
    try:
        return x509.load_pem_x509_certificates(certificates)
    except ValueError:
        return []


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def term(certificate: x509.Certificate) -> Term:
    return Term(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """What the server is called, DNS names and addresses."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(str(each.value) for each in found if isinstance(each, x509.DNSName | x509.IPAddress))


def user_of(certificate: x509.Certificate) -> str:
    """Whom a client's certificate is of."""
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def belongs(key: bytes, certificate: x509.Certificate) -> bool:
    """Whether it is the certificate's own key, whole and without a passphrase."""
    try:
        return load_pem_private_key(key, None).public_key() == certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def can_sign(key: bytes, authority: x509.Certificate) -> bool:
    """An authority that somebody else has made may be of RSA."""
    return belongs(key, authority) and isinstance(
        authority.public_key(), ec.EllipticCurvePublicKey | rsa.RSAPublicKey
    )


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _issue(
    authority: Pair,
    user: str,
    use: x509.ObjectIdentifier,
    called: x509.SubjectAlternativeName | None,
    now: datetime,
    lifetime: timedelta,
) -> Pair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise TypeError("this kind of key does not sign: see can_sign")
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + lifetime, issuer.not_valid_after_utc)
    builder = (
        _builder(_name(user), issuer.subject, key.public_key(), x509.random_serial_number(), now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(_identifier(issuer, signer.public_key()), critical=False)
    )
    if called is not None:
        builder = builder.add_extension(called, critical=False)
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def _identifier(
    issuer: x509.Certificate, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey
) -> x509.AuthorityKeyIdentifier:
    try:
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    serial: int,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now.astimezone(UTC) - BACKDATED)
        .not_valid_after(ends.astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


_LONGEST_NAME = 64
"""Characters of a common name, by X.509; what a server is called stands elsewhere in full."""


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_NAME])])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(pem(certificate), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
