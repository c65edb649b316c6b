"""Serves this machine's metrics over HTTP, for a Prometheus on the same machine.

Only the standard library: the base installation has no HTTP server. The machine is read by one thread, since
the ledger's connection belongs to the thread that opened it; scrapes wait for each other.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.observe.text_format import CONTENT_TYPE

_IDLE = 10.0
"""Seconds that a connection may be silent."""
_MOST_CONNECTIONS = 32


class MetricsServer:
    """`run()` serves until it is interrupted. `read` is called in one thread only, at each scrape."""

    def __init__(self, host: str, port: int, read: Callable[[], bytes]) -> None:
        self._reader = ThreadPoolExecutor(1, "machine")
        try:
            self._server = _Server(host, port, lambda: self._reader.submit(read).result())
        except OSError as error:
            raise CotenantError(
                f"--listen: cannot listen on {host}, port {port}: {error.strerror or error}"
            ) from None

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}/metrics"

    def run(self) -> None:
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()
            self._reader.shutdown(wait=False, cancel_futures=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, read: Callable[[], bytes]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.read = read
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Closes connections beyond the most that are served: each takes a thread."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE
    server: _Server
    server_version = "cotenant"
    sys_version = ""

    def do_HEAD(self) -> None:
        """The same without the body: some load balancers and checks ask so."""
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer(200, b"ok\n", "text/plain")
        elif path == "/metrics":
            try:
                body = self.server.read()
            except CotenantError as error:
                self._answer(503, f"{error}\n".encode(errors="replace"), "text/plain; charset=utf-8")
            else:
                self._answer(200, body, CONTENT_TYPE)
        else:
            self._answer(404, b"/metrics and /healthz are here\n", "text/plain")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a scrape comes every few seconds."""
