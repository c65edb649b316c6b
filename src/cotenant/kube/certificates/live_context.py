"""Serves TLS with a certificate that changes while the server listens.

An `SSLContext` in use accepts a new certificate, but it never stops trusting an authority that it once
trusted. So the listener's own context is empty, and gives each new connection to the newest context.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from cotenant.kube.api.auth.tls import load_pair
from cotenant.kube.certificates.key_pair import KeyPair

_Callback = Callable[[ssl.SSLObject, str | None, ssl.SSLContext], int | None]


class LiveContext:
    """Gives new connections the newest certificate. Open connections keep theirs."""

    def __init__(self) -> None:
        self._listening: dict[bool, ssl.SSLContext] = {}
        self._newest: dict[bool, ssl.SSLContext] = {}

    def context(self, client_certificates: bool) -> ssl.SSLContext:
        """Returns the context for a listener, also before there is a certificate to serve. With
        `client_certificates`, a client must present a certificate that the bundle verifies.
        """
        if client_certificates not in self._listening:
            context = _without_certificate(client_certificates)
            context.sni_callback = self._hand_over(client_certificates)
            self._listening[client_certificates] = context
        return self._listening[client_certificates]

    def serve(self, serving: KeyPair, trusted: bytes | None = None) -> None:
        """Serves this certificate from the next connection on. If it cannot be loaded, nothing changes.
        Without `trusted`, there is no context that accepts client certificates.
        """
        newest = {False: server_context(serving)}
        if trusted is not None:
            newest[True] = server_context(serving, trusted)
        self._newest = newest

    def _hand_over(self, client_certificates: bool) -> _Callback:
        def hand_over(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
            newest = self._newest.get(client_certificates)
            if newest is None:
                return ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR
            connection.context = newest
            return None

        return hand_over


def server_context(serving: KeyPair, trusted_clients: bytes | None = None) -> ssl.SSLContext:
    """Makes a context that serves this certificate. With `trusted_clients` (PEM authorities), a client must
    present a certificate that one of them has signed; an empty bundle is an error, not an open door.
    """
    context = _without_certificate(trusted_clients is not None)
    load_pair(context, serving.certificate, serving.key)
    if trusted_clients is not None:
        context.load_verify_locations(cadata=trusted_clients.decode("ascii"))
    return context


def _without_certificate(client_certificates: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would skip the check of everything that has changed since it began.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
