"""Tells at `/state` what a test wants, as a server or an agent would: the API server brings the doctor to it."""

import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cluster.testbed.controlplane import ControlPlane


@contextmanager
def telling(plane: ControlPlane, address: str, port: int, told: Callable[[], Any]) -> Iterator[None]:
    """At an address of the testbed's bridge. Nobody checks the certificate: the API server does not either."""
    subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "cni0"], check=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(told()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    pair = plane.credentials("teller", [])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer((address, port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
