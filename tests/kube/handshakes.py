"""TLS between two ends in memory: what a real OpenSSL on each side thinks of the other's certificate."""

from __future__ import annotations

import ssl

from cotenant.kube.api.auth.tls import load_pair
from cotenant.kube.certificates.key_pair import KeyPair


def client(trusted: bytes, own: KeyPair | None = None) -> ssl.SSLContext:
    """As strict as any client there is (Python 3.13 is so by default)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=trusted.decode())
    if own is not None:
        load_pair(context, own.certificate, own.key)
    return context


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> dict:
    """The certificate that the server shows; ssl.SSLError, of whoever is the first to object."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(20):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    ends[1].write(b"hello")  # under TLS 1.3 a client hears only now that it was refused
    assert ends[0].read() == b"hello"
    return ends[0].getpeercert()
