"""A real node: containerd, runc, CNI and a kubelet, under a cgroup of the testbed's own."""

import http.client
import json
import subprocess
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from . import binaries, images, places
from .api import Object, Refused
from .component import Component, answers
from .controlplane import ControlPlane
from .init import NODE_ADDRESS

FOLDER = places.STATE / "node"
SOCKET = Path("/run/containerd/containerd.sock")
PAUSE = "localhost/pause:local"
CONTAINERD_CONFIG = """\
version = 3
root = "{folder}/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs"]

[plugins.'io.containerd.internal.v1.opt']
path = "{folder}/opt"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
# Root in a container may not lower its own score, and every sandbox would fail.
restrict_oom_score_adj = true
enable_cdi = true
cdi_spec_dirs = ["/run/cdi"]

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{binaries}/runc"

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{binaries}"]
conf_dir = "{folder}/cni"
"""
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "testbed",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": False,
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "dataDir": f"{FOLDER}/addresses",
                "ranges": [[{"subnet": "10.244.0.0/24", "gateway": NODE_ADDRESS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


class Node:
    def __init__(
        self, control_plane: ControlPlane, name: str = "node", kubelet: Mapping[str, Any] | None = None
    ) -> None:
        """`kubelet`: further keys of KubeletConfiguration."""
        self.name = name
        self.path = f"/api/v1/nodes/{name}"
        self._control_plane = control_plane
        self.times: dict[str, float] = {}
        FOLDER.mkdir(parents=True)
        (FOLDER / "cni").mkdir()
        (FOLDER / "cni" / "10-testbed.conflist").write_text(json.dumps(NETWORK))
        config = FOLDER / "containerd.toml"
        config.write_text(
            CONTAINERD_CONFIG.format(folder=FOLDER, pause=PAUSE, binaries=places.runtime_folder())
        )
        self.containerd = Component(
            "containerd",
            [places.binary("containerd"), "--config", config],
            ready=lambda: SOCKET.exists() and self._cri(),
        )
        self._healthy = answers(http.client.HTTPConnection("127.0.0.1:10248", timeout=2), "/healthz")
        self.kubelet = Component("kubelet", self._kubelet(kubelet or {}), ready=self._ready)

    def start(self) -> None:
        begun = time.monotonic()
        self.containerd.start()
        self.containerd.wait()
        self.times["containerd"] = time.monotonic() - begun
        self.add_image(
            images.write(FOLDER / "pause.tar", PAUSE, {"/pause": binaries.pause()}, entrypoint=["/pause"])
        )
        self.kubelet.start()
        self.kubelet.wait()
        self.times["node ready"] = time.monotonic() - begun

    def stop(self) -> None:
        """Containers go on, as on any node whose kubelet ends; the testbed's end is theirs."""
        self.kubelet.stop()
        self.containerd.stop()

    def add_image(self, archive: Path) -> None:
        """From then on pods name it with `imagePullPolicy: Never`. An archive of the testbed's own goes."""
        self.ctr("images", "import", "--local", str(archive))
        if archive.is_relative_to(places.STATE):
            archive.unlink()

    def has_image(self, name: str) -> bool:
        return name in self.ctr("images", "list", "--quiet").split()

    def ctr(self, *arguments: str) -> str:
        command = [str(places.binary("ctr")), "--namespace", "k8s.io", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"ctr {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def status(self) -> Object:
        found: Object = self._control_plane.api.get(self.path)["status"]
        return found

    def _cri(self) -> bool:
        """The socket is there before the CRI plugin is."""
        try:
            return "cri" in self.ctr("plugins", "list", "id==cri")
        except AssertionError:
            return False

    def _ready(self) -> bool:
        """By its own word and by a report that is not from before its start: the last one says Ready for ever."""
        if not self._healthy():
            return False
        try:
            found = self._control_plane.api.get(self.path)
        except (OSError, http.client.HTTPException, Refused):
            return False
        conditions = {each["type"]: each for each in found["status"]["conditions"]}
        heard = datetime.fromisoformat(conditions["Ready"]["lastHeartbeatTime"]).timestamp()
        ready = conditions["Ready"]["status"] == "True" and heard >= int(self.kubelet.started)
        return ready and not found["spec"].get("taints")

    def _kubelet(self, further: Mapping[str, Any]) -> list[object]:
        authority = self._control_plane.authority
        serving = authority.issue("kubelet", user="kubelet", names=[self.name], addresses=[NODE_ADDRESS])
        resolv = FOLDER / "resolv.conf"
        resolv.touch()
        content = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.pair.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{places.inside()}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "resolvConf": str(resolv),
            "volumePluginDir": str(FOLDER / "volume-plugins"),
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "maxPods": 250,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "kubeAPIQPS": 1000,
            "kubeAPIBurst": 1000,
            **further,
        }
        config = FOLDER / "kubelet.yaml"
        config.write_text(json.dumps(content, indent=1))
        return [
            places.binary("kubelet"),
            f"--config={config}",
            f"--kubeconfig={self._control_plane.kubeconfig(f'system:node:{self.name}', ['system:nodes'])}",
            f"--hostname-override={self.name}",
            f"--node-ip={NODE_ADDRESS}",
        ]
