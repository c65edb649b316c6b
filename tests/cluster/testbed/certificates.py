"""A certificate authority that lives as long as the testbed, and the certificates that it gives out."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path


class Authority:
    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = (
            self._builder(self._subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pair = self._write(name, made, self._key)

    def issue(
        self,
        name: str,
        *,
        user: str,
        groups: Sequence[str] = (),
        names: Sequence[str] = (),
        addresses: Sequence[str] = (),
    ) -> Pair:
        """`user` and `groups` are who a client is to Kubernetes; `names` and `addresses` are what a server is called."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = self._builder(subject, key).add_extension(usage, critical=False)
        called: list[x509.GeneralName] = [x509.DNSName(each) for each in names]
        called += [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        if called:
            builder = builder.add_extension(x509.SubjectAlternativeName(called), critical=False)
        return self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + 365 * DAY)
        )

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        pair.key.chmod(0o600)
        return pair
