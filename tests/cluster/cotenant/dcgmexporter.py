"""Plays NVIDIA's DCGM exporter with `--kubernetes-virtual-gpus`, for the simulated cards of one stand-in driver.

Names, labels and units are the real one's: `DCGM_FI_DEV_FB_USED` of each GPU, and beside it of each pod, added up over
the processes that the driver reports in the pod's cgroup; `DCGM_FI_DEV_FB_FREE` is the GPU's, for each pod.
"""

import re
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from cluster.cotenant.timeslicing import RESOURCE
from cluster.testbed.api import Api, Object

from cotenant.hardware.standin.driver import StandIn

USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
OF_POD = re.compile(r"/pod([0-9a-f-]{36})/")
MIB = 1 << 20

Sample = tuple[str, dict[str, str], int]


class DcgmExporter:
    def __init__(self, state: Path, api: Api, node: str) -> None:
        self._driver, self._api, self._node = StandIn(state), api, node
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = "".join(exporter.lines()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _serve(self) -> None:
        self._server.serve_forever()
        self._api.close()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def lines(self) -> Iterator[str]:
        for name, labels, value in self.samples():
            text = ",".join(f'{key}="{each}"' for key, each in labels.items())
            yield f"{name}{{{text}}} {value}\n"

    def samples(self) -> Iterator[Sample]:
        pods = {pod["metadata"]["uid"]: pod for pod in self._sharing()}
        for index, card in enumerate(self._driver.cards()):
            gpu = gpu_labels(card.uuid, index, card.name, self._node)
            held = Counter[str]()
            for process in self._driver.processes():
                held[_pod_of(process.pid)] += process.used.get(card.uuid, 0)
            yield USED, gpu, card.used // MIB
            for turn, (uid, pod) in enumerate(pods.items()):
                own = {**gpu, **pod_labels(pod), "vgpu": str(turn)}
                yield USED, own, held[uid] // MIB
                yield FREE, own, (card.capacity - card.used) // MIB

    def _sharing(self) -> list[Object]:
        running = self._api.items("/api/v1/pods", fieldSelector="status.phase=Running")
        return [each for each in running if _asks(each["spec"]["containers"][0])]


def _asks(container: Object) -> bool:
    return RESOURCE in container.get("resources", {}).get("limits", {})


def _pod_of(pid: int | None) -> str:
    """The UID of the pod that has a process; empty if none has."""
    try:
        found = OF_POD.search(Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:  # it has ended
        return ""
    return found[1] if found else ""


def gpu_labels(uuid: str, index: int, model: str, node: str) -> dict[str, str]:
    return {
        "gpu": str(index),
        "UUID": uuid,
        "device": f"nvidia{index}",
        "modelName": model,
        "Hostname": node,
        "DCGM_FI_DRIVER_VERSION": "580.95.05",
    }


def pod_labels(pod: Object) -> dict[str, str]:
    meta = pod["metadata"]
    return {
        "container": pod["spec"]["containers"][0]["name"],
        "namespace": meta["namespace"],
        "pod": meta["name"],
    }
