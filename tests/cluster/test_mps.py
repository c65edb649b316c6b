"""Containers on a real kubelet reach the node's MPS with shares of their own: NVIDIA's control daemon, simulated GPUs."""

import time
from pathlib import Path
from typing import Any

import pytest
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import container, pod, pods_of, running
from cluster.testbed.cluster import Cluster

from cotenant.hardware.mps import daemon
from cotenant.hardware.mps.place import place_in
from scripts import mps

pytestmark = pytest.mark.timeout(240)

PROGRAM = """
import json, os, socket, time
pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")
reached = "not tried"
if pipe:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        reached = os.strerror(control.connect_ex(pipe + "/control"))
name = os.environ["NAME"]
open("/dev/shm/of-" + name, "w").close()
ends = time.monotonic() + (0 if name == "apart" else 60)
try:
    written = open("/run/cotenant/mps/node/x", "w").name
except OSError as error:
    written = error.strerror
while len([each for each in os.listdir("/dev/shm") if each.startswith("of-")]) < 3 and time.monotonic() < ends:
    time.sleep(0.1)
print(json.dumps({
    "environment": {key: value for key, value in os.environ.items() if key.startswith("CUDA_MPS")},
    "reached": reached,
    "daemons": os.listdir("/run/cotenant/mps"),
    "shared": sorted(each for each in os.listdir("/dev/shm") if each.startswith("of-")),
    "written": written,
}), flush=True)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def cotenant(start_cotenant, cluster: Cluster) -> Installation:
    try:
        program = mps.find()
    except mps.CannotGet as reason:
        pytest.skip(str(reason))
    own = {"daemons": "node", "program": str(program), "shared_memory": "/dev/shm"}
    installation = start_cotenant(servers=1, settings={"mps": own})
    installation.start_agent(cluster.node.name, "1x24GiB")
    return installation


def client(cluster: Cluster, name: str, uid: int, **asked: object):
    body = container(name, cluster.python_image(), **asked)
    body["command"] = ["python", "-c", PROGRAM]
    body["env"] = [{"name": "NAME", "value": name}]
    body["securityContext"] = {"runAsUser": uid}
    return body


def test_two_containers_on_one_card_have_different_shares_of_it(
    cotenant: Installation, cluster: Cluster, namespace: str
):
    own = {"name": "own", "mountPath": "/dev/shm"}
    body = pod(
        "shares",
        client(cluster, "small", 1000, memory="1536Mi", compute="30"),
        client(cluster, "large", 1000, memory="3Gi", compute="50"),
        client(cluster, "other", 1000, memory="1Gi"),
        {**client(cluster, "apart", 1000, memory="1Gi", compute="10"), "volumeMounts": [own]},
        volumes=[{"name": "own", "emptyDir": {"medium": "Memory"}}],
    )
    cluster.api.create(pods_of(namespace), body)
    running(cluster.api, namespace, "shares", 120)
    told = {name: said(cluster, namespace, "shares", name) for name in ("small", "large", "other", "apart")}
    for name, percent, memory in (("small", "30", "0=1536M"), ("large", "50", "0=3072M")):
        assert told[name]["environment"] == {
            "CUDA_MPS_PIPE_DIRECTORY": "/run/cotenant/slot/mps",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent,
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": memory,
        }
        assert told[name]["reached"] == "Success", "as a user that is not root"
    assert told["other"]["environment"] == {}, "it asked for no share, so a fault of others is not its own"
    apart = told.pop("apart")
    assert "CUDA_MPS_PIPE_DIRECTORY" not in apart["environment"]
    assert apart["shared"] == ["of-apart"], "shared memory of its own is its own"
    for each in told.values():
        assert (each["daemons"], each["written"]) == (["node"], "Read-only file system")
        assert each["shared"] == ["of-large", "of-other", "of-small"], "they share memory with the daemon"
    place = place_in(Path(cotenant.agent_settings.agent.slots) / "mps", "node")
    assert daemon.holder(place)


def said(cluster: Cluster, namespace: str, name: str, of: str) -> Any:
    path = f"{pods_of(namespace)}/{name}/log"
    ends = time.monotonic() + 90
    while not isinstance(found := cluster.api.request("GET", path, query={"container": of}), dict):
        assert time.monotonic() < ends, found
        time.sleep(0.2)
    return found
