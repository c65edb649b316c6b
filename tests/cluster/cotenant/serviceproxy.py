"""Plays kube-proxy for one Service: connections to its address go to the endpoint that its EndpointSlices name.

As with kube-proxy, a connection that stands stays where it is when the endpoint changes, and while the API
server is away the last known endpoint is used. A process of its own (`python -m cluster.cotenant.serviceproxy`).
"""

import asyncio
import contextlib
import http.client
import itertools
import sys
import threading
import time
from pathlib import Path

from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.certificates import Pair

LOST = (OSError, http.client.HTTPException, ValueError, KeyError)


def endpoints(slices: list[Object]) -> list[tuple[str, int]]:
    return [
        (address, port["port"])
        for each in slices
        for endpoint in each.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint["addresses"]
        for port in (each.get("ports") or ())[:1]
    ]


class ServiceProxy:
    def __init__(self, api: Api, namespace: str, service: str) -> None:
        self._api = api
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        self._known: list[tuple[str, int]] = []
        self._turn = itertools.count()

    def follow(self) -> None:
        while True:
            with contextlib.suppress(Refused, *LOST):
                self._follow_once()
            time.sleep(0.1)

    def _follow_once(self) -> None:
        listed = self._api.get(self._path, **self._query)
        slices = {each["metadata"]["name"]: each for each in listed["items"]}
        self._set(list(slices.values()))
        version = listed["metadata"]["resourceVersion"]
        for event in self._api.watch(self._path, resourceVersion=version, **self._query):
            if event["type"] == "ERROR":
                return
            name = event["object"]["metadata"]["name"]
            slices.pop(name, None)
            if event["type"] != "DELETED":
                slices[name] = event["object"]
            self._set(list(slices.values()))

    def _set(self, slices: list[Object]) -> None:
        found = endpoints(slices)
        if found != self._known:
            print(f"{time.time():.3f} endpoints: {found}", flush=True)
        self._known = found

    async def serve(self, address: str, port: int) -> None:
        server = await asyncio.start_server(self._forward, address, port)
        print("listening", flush=True)
        await server.serve_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known = self._known
        try:
            if not known:
                return
            to = known[next(self._turn) % len(known)]
            away_reader, away_writer = await asyncio.open_connection(*to)
            await asyncio.gather(_copy(reader, away_writer), _copy(away_reader, writer))
        except OSError:
            pass
        finally:
            writer.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    except OSError:
        pass
    finally:
        target.close()


def main(
    namespace: str,
    service: str,
    address: str,
    port: str,
    host: str,
    authority: str,
    certificate: str,
    key: str,
) -> None:
    proxy = ServiceProxy(Api(host, Path(authority), Pair(Path(certificate), Path(key))), namespace, service)
    threading.Thread(target=proxy.follow, daemon=True).start()
    asyncio.run(proxy.serve(address, int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
