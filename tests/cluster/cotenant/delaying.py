"""Stands between a server and the API server, and delays what a file says: requests on their way, or their answers.

`python -m cluster.cotenant.delaying FILE PORT HOST AUTHORITY CERTIFICATE KEY`. A request that is late arrives even
if whoever sent it has given up meanwhile, as one does that lies in the buffers of a slow API server.
"""

import asyncio
import json
import re
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
from aiohttp import web
from cluster.testbed.component import Component
from cluster.testbed.controlplane import ControlPlane
from yarl import URL

OF_ONE_CONNECTION = ("host", "connection", "transfer-encoding", "content-length")


@dataclass(frozen=True)
class Delay:
    """Of requests whose method and path these expressions match, in seconds."""

    method: str
    path: str
    request: float = 0.0
    """Until the API server gets it."""
    answer: float = 0.0
    """Until the server gets what the API server said at once."""


class Delays:
    """The process, and what it delays: nothing, unless a test says so."""

    PORT = 18080

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self._file = folder / "delays"
        pair = control_plane.credentials("delayed", ["system:masters"])
        trusted = control_plane.authority.pair.certificate
        access = (control_plane.host, trusted, pair.certificate, pair.key)
        self.process = Component("delaying", [sys.executable, "-m", __name__, self._file, self.PORT, *access])
        self.process.ready = lambda: "listening" in self.process.tail()
        self.kubeconfig = folder / "delayed.kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "delayed",
                    "contexts": [{"name": "delayed", "context": {"cluster": "delayed", "user": ""}}],
                    "clusters": [{"name": "delayed", "cluster": {"server": f"http://127.0.0.1:{self.PORT}"}}],
                }
            )
        )

    @contextmanager
    def of(self, *delays: Delay) -> Iterator[None]:
        self._write(delays)
        try:
            yield
        finally:
            self._write(())

    def _write(self, delays: tuple[Delay, ...]) -> None:
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps([asdict(each) for each in delays]))
        part.rename(self._file)


class Proxy:
    def __init__(self, file: Path, host: str, context: ssl.SSLContext) -> None:
        self._file, self._host, self._context = file, host, context

    async def serve(self, port: int) -> None:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._context)
        never = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=never, auto_decompress=False) as away:
            self._away = away
            app = web.Application(client_max_size=2**26)
            app.router.add_route("*", "/{path:.*}", self._forward)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            print("listening", flush=True)
            await asyncio.Event().wait()

    def _delay(self, request: web.Request) -> Delay:
        for each in json.loads(self._file.read_text()) if self._file.exists() else ():
            found = Delay(**each)
            if re.fullmatch(found.method, request.method) and re.search(found.path, request.path):
                print(f"{request.method} {request.path}: {found}", flush=True)
                return found
        return Delay("", "")

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        delay, body = self._delay(request), await request.read()
        await asyncio.sleep(delay.request)
        headers = {key: text for key, text in request.headers.items() if key.lower() not in OF_ONE_CONNECTION}
        url = URL(f"https://{self._host}{request.raw_path}", encoded=True)
        async with self._away.request(request.method, url, data=body or None, headers=headers) as answer:
            await asyncio.sleep(delay.answer)
            own = {key: text for key, text in answer.headers.items() if key.lower() not in OF_ONE_CONNECTION}
            response = web.StreamResponse(status=answer.status, headers=own)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response


def main(file: str, port: str, host: str, authority: str, certificate: str, key: str) -> None:
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate, key)
    asyncio.run(Proxy(Path(file), host, context).serve(int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
