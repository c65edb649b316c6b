"""A small exporter of metrics, and of JSON, whose answer the test sets."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Exporter(ThreadingHTTPServer):
    """Answers /metrics with `text`; with nothing at all while `gone`."""

    def __init__(self) -> None:
        self.text = ""
        self.gone = False
        super().__init__(("127.0.0.1", 0), _Metrics)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Metrics(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        if self.server.gone:
            self.send_error(500)
            return
        body = self.server.text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
