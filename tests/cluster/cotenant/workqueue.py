"""A queue that is asked over HTTP, and workers that really take its messages: as many at once as replicas are ready."""

import contextlib
import http.client
import http.server
import json
import threading
import time
from collections.abc import Callable

from cluster.testbed.api import Refused


class WorkQueue:
    """Messages of equal length. Each ready replica works on one at a time."""

    def __init__(
        self,
        address: str,
        port: int,
        seconds: float,
        ready: Callable[[], int],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`seconds`: what one message takes. `ready`: how many replicas there are now; `ended`: called in the same
        thread when nobody asks any more.
        """
        self.url = f"http://{address}:{port}/"
        self.broken = False
        self._seconds, self._ready, self._ended = seconds, ready, ended
        self._lock = threading.Lock()
        self._depth = self._arrived = self._completed = 0
        self._ends: list[float] = []
        self._closed = threading.Event()
        self._server = http.server.ThreadingHTTPServer((address, port), self._handler())
        self._threads = [
            threading.Thread(target=self._server.serve_forever, daemon=True),
            threading.Thread(target=self._work, daemon=True),
        ]
        for each in self._threads:
            each.start()

    def put(self, messages: int) -> None:
        with self._lock:
            self._depth += messages
            self._arrived += messages

    @property
    def figures(self) -> dict[str, int]:
        with self._lock:
            return {
                "depth": self._depth,
                "inFlight": len(self._ends),
                "arrived": self._arrived,
                "completed": self._completed,
            }

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        for each in self._threads:
            each.join()

    def _work(self) -> None:
        ready = 0
        while not self._closed.wait(0.1):
            with contextlib.suppress(OSError, http.client.HTTPException, Refused):
                ready = self._ready()
            now = time.monotonic()
            with self._lock:
                left = [end for end in self._ends if end > now]
                self._completed += len(self._ends) - len(left)
                taken = max(0, min(self._depth, ready - len(left)))
                self._depth -= taken
                self._ends = [*left, *[now + self._seconds] * taken]
        self._ended()

    def _handler(queue: "WorkQueue") -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(queue.figures).encode()
                self.send_response(503 if queue.broken else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        return Handler
