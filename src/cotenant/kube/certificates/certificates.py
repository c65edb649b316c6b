"""Issues and checks X.509 certificates. Pure apart from the random keys and serial numbers.

All keys are on the curve P-256: generated in a millisecond, and accepted by everything that speaks TLS 1.2 or
later.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
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

from cotenant.kube.certificates.key_pair import KeyPair

BACKDATED = timedelta(hours=1)
"""A certificate is valid from this long before it is issued: clocks differ, and some jump."""


@dataclass(frozen=True, slots=True)
class Validity:
    """The time during which a certificate is valid: `not_before <= now < not_after`."""

    not_before: datetime
    not_after: datetime

    def contains(self, now: datetime) -> bool:
        return self.not_before <= now < self.not_after

    def fraction_left(self, now: datetime) -> float:
        """The part of its lifetime that remains; the lifetime counts from when it was issued."""
        return (self.not_after - now) / (self.not_after - self.issued)

    @property
    def issued(self) -> datetime:
        return self.not_before + BACKDATED


def new_authority(now: datetime, lifetime: timedelta) -> KeyPair:
    """Makes a certificate authority with a unique name, so that no client mistakes it for another one."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"cotenant-authority-{serial & 0xFFFFFFFF:08x}")
    certificate = (
        _builder(name, name, key.public_key(), serial, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue_self_signed(subject: str, names: Sequence[str], now: datetime, lifetime: timedelta) -> KeyPair:
    """Issues a serving certificate that no authority vouches for: it encrypts, and proves nothing."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, serial = _name(subject), x509.random_serial_number()
    builder = _builder(name, name, key.public_key(), serial, now, now + lifetime)
    builder = _leaf(builder, ExtendedKeyUsageOID.SERVER_AUTH, names)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue_serving(authority: KeyPair, names: Sequence[str], now: datetime, lifetime: timedelta) -> KeyPair:
    """Issues a certificate for a server with these DNS names and IP addresses. It expires no later than the
    authority.
    """
    return _issue(authority, names[0], ExtendedKeyUsageOID.SERVER_AUTH, names, now, lifetime)


def issue_client(authority: KeyPair, user: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """Issues a certificate that identifies a client as `user`."""
    return _issue(authority, user, ExtendedKeyUsageOID.CLIENT_AUTH, (), now, lifetime)


def read(certificate: bytes) -> x509.Certificate | None:
    """Parses one PEM certificate; None if it is damaged or there is not exactly one."""
    found = read_all(certificate)
    return found[0] if len(found) == 1 else None


def read_all(certificates: bytes) -> list[x509.Certificate]:
    """Parses PEM certificates; an empty list if any of them is damaged."""
    try:
        return x509.load_pem_x509_certificates(certificates)
    except ValueError:
        return []


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def validity(certificate: x509.Certificate) -> Validity:
    return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Returns the DNS names and IP addresses of a serving certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(str(each.value) for each in found if isinstance(each, x509.DNSName | x509.IPAddress))


def user_of(certificate: x509.Certificate) -> str:
    """Returns the user that a client certificate identifies: its common name."""
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def belongs(key: bytes, certificate: x509.Certificate) -> bool:
    """Whether this is the certificate's own private key, undamaged and without a passphrase."""
    try:
        return load_pem_private_key(key, None).public_key() == certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def can_sign(key: bytes, authority: x509.Certificate) -> bool:
    """Whether the key can sign for the authority. An authority from elsewhere may have an RSA key."""
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
    authority: KeyPair,
    subject: str,
    usage: x509.ObjectIdentifier,
    names: Sequence[str],
    now: datetime,
    lifetime: timedelta,
) -> KeyPair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise TypeError("this kind of key cannot sign: check with can_sign")
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + lifetime, issuer.not_valid_after_utc)
    serial = x509.random_serial_number()
    builder = _builder(_name(subject), issuer.subject, key.public_key(), serial, now, ends)
    builder = _leaf(builder, usage, names).add_extension(
        _authority_key_identifier(issuer, signer.public_key()), critical=False
    )
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def _leaf(
    builder: x509.CertificateBuilder, usage: x509.ObjectIdentifier, names: Sequence[str]
) -> x509.CertificateBuilder:
    """Adds what makes it the certificate of a server or a client, and not of an authority."""
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    )
    if not names:
        return builder
    called = x509.SubjectAlternativeName([_general(name) for name in names])
    return builder.add_extension(called, critical=False)


def _authority_key_identifier(
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
"""Characters of a common name, by X.509. A server's full names are in its subject alternative names."""


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_NAME])])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(pem(certificate), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
