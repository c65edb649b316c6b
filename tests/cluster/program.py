"""A testbed for the tests of testbeds: starts what it is told to, says that it stands, and waits for its input to end."""

import json
import sys

from cluster.testbed import places
from cluster.testbed.cluster import Cluster
from cluster.testbed.controlplane import ControlPlane

PODS = "/api/v1/namespaces/default/pods"


def main(what: str, mark: str) -> None:
    if what == "etcd":
        run_etcd()
        return
    control_plane = ControlPlane()
    control_plane.start()
    control_plane.api.create("/api/v1/namespaces", {"metadata": {"name": mark}})
    cluster = run_a_pod(control_plane) if what == "cluster" else None
    names = [each["metadata"]["name"] for each in control_plane.api.items("/api/v1/namespaces")]
    print(json.dumps({"name": places.inside(), "namespaces": names}), flush=True)
    sys.stdin.read()
    if cluster:
        cluster.stop()
    control_plane.stop()


def run_etcd() -> None:
    """One component, where a test asks only how components end: the others take five seconds of CPU time."""
    etcd = ControlPlane().etcd
    etcd.start()
    etcd.wait()
    print(json.dumps({"name": places.inside(), "namespaces": []}), flush=True)
    sys.stdin.read()
    etcd.stop()


def run_a_pod(control_plane: ControlPlane) -> Cluster:
    cluster = Cluster(control_plane)
    cluster.start()
    control_plane.api.until("/api/v1/namespaces/default/serviceaccounts/default", lambda _: True)
    container = {
        "name": "sleeper",
        "image": cluster.python_image(),
        "imagePullPolicy": "Never",
        "command": ["python", "-c", "import time; time.sleep(3600)"],
    }
    control_plane.api.create(PODS, {"metadata": {"name": "sleeper"}, "spec": {"containers": [container]}})
    control_plane.api.until(f"{PODS}/sleeper", lambda pod: pod["status"]["phase"] == "Running")
    return cluster


if __name__ == "__main__":
    main(*sys.argv[1:])
