"""TLS settings from certificates in memory."""

from __future__ import annotations

import os
import ssl

from cotenant.kube.api.errors import NoCredential


def client_context(authority: bytes, verify: bool, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """No authority means the system's. A context made so, unlike the default one of Python 3.13, also takes
    authorities without a key identifier, which many clusters have.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority:
        try:
            context.load_verify_locations(cadata=authority.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError):
            raise NoCredential("certificate-authority: not a PEM certificate") from None
    else:
        context.load_default_certs()
    if certificate:
        load_pair(context, certificate, key)
    return context


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Through memory that has no name: OpenSSL wants files, and a private key must not get onto a disk."""
    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as pair:
            pair.write(certificate + b"\n" + key)
        # A key with a passphrase would otherwise ask for it on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    except (ssl.SSLError, OSError):
        raise NoCredential(
            "client-certificate, client-key: not a PEM certificate with its own unencrypted PEM key"
        ) from None
    finally:
        os.close(descriptor)
