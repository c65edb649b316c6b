"""Makes TLS client contexts, and loads certificates into any context from memory.

Everything in Cotenant that loads a private key into an `SSLContext` does it through `load_pair`.
"""

from __future__ import annotations

import os
import ssl

from cotenant.kube.api.errors import NoCredential


def client_context(authority: bytes, verify: bool, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Makes the context of a client. Without an `authority`, it trusts the system's. Unlike the default
    context of Python 3.13, it accepts authorities without a key identifier, which many clusters have.
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
        try:
            load_pair(context, certificate, key)
        except NotAKeyPair as error:
            raise NoCredential(f"client-certificate, client-key: {error}") from None
    return context


class NotAKeyPair(ValueError):
    """The certificate or the key cannot be loaded, or they do not belong together."""


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Loads a PEM certificate and its key into the context. OpenSSL reads files only, so they pass through
    anonymous memory: a private key must not reach a disk.
    """
    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as pair:
            pair.write(certificate + b"\n" + key)
        # Without this, OpenSSL would ask for the passphrase of an encrypted key on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    except (ssl.SSLError, OSError):
        raise NotAKeyPair("not a PEM certificate with its own unencrypted PEM key") from None
    finally:
        os.close(descriptor)
