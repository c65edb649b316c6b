"""TLS contexts of a listener whose certificates change while it listens.

A context that is in use can be given another certificate, but an authority that it once trusted cannot be
taken from it. So the listener's own context is empty, and hands each new connection to the newest one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from cotenant.kube.api.auth.tls import load_pair
from cotenant.kube.certificates.certificates import Pair

_Callback = Callable[[ssl.SSLObject, str | None, ssl.SSLContext], int | None]


class LiveTls:
    """Connections that stand are left alone; new ones get what was served last."""

    def __init__(self) -> None:
        self._listening: dict[bool, ssl.SSLContext] = {}
        self._newest: dict[bool, ssl.SSLContext] = {}

    def context(self, client_certificates: bool) -> ssl.SSLContext:
        """For a listener; may be given to it before there is anything to serve. With `client_certificates`, a
        client must show one that the bundle vouches for.
        """
        if client_certificates not in self._listening:
            context = _empty(client_certificates)
            context.sni_callback = self._hand_over(client_certificates)
            self._listening[client_certificates] = context
        return self._listening[client_certificates]

    def serve(self, serving: Pair, trusted: bytes) -> None:
        """From the next connection on. Nothing changes if the pair is no pair."""
        newest = {}
        for client_certificates in (False, True):
            context = _empty(client_certificates)
            load_pair(context, serving.certificate, serving.key)
            if client_certificates:
                context.load_verify_locations(cadata=trusted.decode("ascii"))
            newest[client_certificates] = context
        self._newest = newest

    def _hand_over(self, client_certificates: bool) -> _Callback:
        def hand_over(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
            newest = self._newest.get(client_certificates)
            if newest is None:
                return ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR
            connection.context = newest
            return None

        return hand_over


def _empty(client_certificates: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would pass by all that has changed since it began.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
