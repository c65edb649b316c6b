"""Serves a queue of messages over HTTP in the demo's own process: it needs nothing installed.

`GET /` answers with its figures, which `cotenant up` reads; workers take a message with `POST /take` and
report it with `POST /done`.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class MessageQueue:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = self._working = self._done = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    @property
    def done(self) -> int:
        """Messages that were worked on."""
        return self._done

    def put(self, count: int) -> None:
        with self._lock:
            self._waiting += count

    def take(self) -> bool:
        """Whether there was a message."""
        with self._lock:
            found = self._waiting > 0
            self._waiting -= found
            self._working += found
            return found

    def finish(self) -> None:
        with self._lock:
            self._working -= 1
            self._done += 1

    def figures(self) -> dict[str, int]:
        with self._lock:
            return {"waiting": self._waiting, "working": self._working, "done": self._done}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(queue: MessageQueue) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(queue.figures())

        def do_POST(self) -> None:
            if self.path == "/take":
                self._answer({"message": queue.take()})
            else:
                queue.finish()
                self._answer({})

        def _answer(self, document: dict[str, int] | dict[str, bool]) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    return Handler
