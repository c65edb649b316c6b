"""Pods of every shape in one namespace with a quota: each container has the limit that is documented, and the quota counts all."""

import json

import pytest
from cluster.cotenant.auditor import Auditor
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import container, pod, pods_of, running
from cluster.cotenant.tenants import granted, told
from cluster.testbed.api import Object, Refused
from cluster.testbed.cluster import Cluster

pytestmark = pytest.mark.timeout(240)
GIB = 2**30
QUOTA = "requests.cotenant.dev/gpu-memory"


@pytest.fixture(scope="module")
def cotenant(start_cotenant, cluster: Cluster) -> Installation:
    installation = start_cotenant(servers=1)
    installation.start_agent(cluster.node.name, "4x24GiB")
    return installation


@pytest.fixture
def quota(cluster: Cluster, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    cluster.api.create(path, {"metadata": {"name": "gpu"}, "spec": {"hard": {QUOTA: "40Gi"}}})
    cluster.api.until(f"{path}/gpu", lambda seen: QUOTA in seen.get("status", {}).get("hard", {}))
    return f"{path}/gpu"


def tenant(cluster: Cluster, name: str = "main", *, passing: bool = False, **asked: object) -> Object:
    """`passing`: it ends when it has told, as an init container does."""
    body = container(name, cluster.python_image(), "tenant.py", **asked)
    if passing:
        body["env"] = [{"name": "TENANT", "value": "pass"}]
    return body


def plain(cluster: Cluster, name: str = "main") -> Object:
    body = container(name, cluster.python_image())
    body["command"] = ["python", "-c", "import time; time.sleep(3600)"]
    return body


def gib(sizes: dict[str, int]) -> list[float]:
    return sorted(size / GIB for size in sizes.values())


def test_containers_of_every_kind_have_the_documented_limits_and_the_quota_counts_them(
    cotenant: Installation, cluster: Cluster, namespace: str, quota: str
):
    sidecar = {**tenant(cluster, "sidecar", memory="1Gi"), "restartPolicy": "Always"}
    pods = {
        "two": pod("two", tenant(cluster, "small", memory="1Gi"), tenant(cluster, "large", memory="3Gi")),
        "big-init": pod(
            "big-init",
            tenant(cluster, "first", memory="2Gi"),
            tenant(cluster, "second", memory="1Gi"),
            init=[tenant(cluster, "init", passing=True, memory="5Gi")],
        ),
        "init-only": pod(
            "init-only", plain(cluster), init=[tenant(cluster, "init", passing=True, memory="2Gi")]
        ),
        "with-sidecar": pod("with-sidecar", tenant(cluster, memory="2Gi"), init=[sidecar]),
        "two-cards": pod(
            "two-cards", tenant(cluster, memory="8Gi"), annotations={"gpu-count.cotenant.dev/main": "2"}
        ),
        "whole": pod("whole", tenant(cluster, whole="1")),
        "aliyun": pod("aliyun", tenant(cluster, **{"aliyun.com/gpu-mem": "4"})),
        "volcano": pod(
            "volcano", tenant(cluster, **{"volcano.sh/gpu-memory": "1024"}), schedulerName="volcano"
        ),
    }
    with Auditor(cluster.api) as auditor:
        for each in pods.values():
            cluster.api.create(pods_of(namespace), each)
        seen = {name: running(cluster.api, namespace, name, 120) for name in pods}

        def limit(name: str, container: str = "main") -> list[float]:
            """As granted, as the container reads it, and as CUDA stopped it: all three the same."""
            said = told(cluster, seen[name], container)
            sizes = granted(seen[name], container)
            assert said.owner == seen[name]["metadata"]["uid"]
            assert {card: size for card, (size, _) in said.limits.items()} == sizes
            assert sorted(said.cards) == sorted(sizes)
            for card, size in sizes.items():
                got = said.got[card] + said.limits[card][1]
                assert size - (2 << 20) < got <= size
            return gib(sizes)

        assert limit("two", "small") == [1]
        assert limit("two", "large") == [3]
        assert limit("big-init", "init") == [5]
        assert gib(granted(seen["big-init"], "first")) == [5], "it shares the slot of the init container"
        assert limit("big-init", "first") == [5]
        assert limit("big-init", "second") == [1]
        assert limit("init-only", "init") == [2]
        assert gib(granted(seen["init-only"])) == [2], "the first container holds the slot"
        assert limit("with-sidecar", "sidecar") == [1]
        assert limit("with-sidecar") == [2]
        assert limit("two-cards") == [4, 4]
        assert limit("whole") == [24]
        assert limit("aliyun") == [4]
        assert limit("volcano") == [1]

        charged = {
            "two": 4,
            "big-init": 6,
            "init-only": 2,
            "with-sidecar": 3,
            "two-cards": 8,
            "aliyun": 4,
            "volcano": 1,
        }
        used = cluster.api.until(
            quota, lambda found: found["status"]["used"][QUOTA] == f"{sum(charged.values())}Gi"
        )
        assert used["status"]["used"][QUOTA] == "28Gi"
        with pytest.raises(Refused, match="exceeded quota"):
            cluster.api.create(
                pods_of(namespace), pod("over", tenant(cluster, **{"aliyun.com/gpu-mem": "13"}))
            )
        assert auditor.violations == []
        assert len(json.loads(seen["whole"]["metadata"]["annotations"]["cotenant.dev/grant"])["slots"]) == 1
        whole = next(iter(granted(seen["whole"])))
        assert not any(
            whole in granted(each, part["name"])
            for name, each in seen.items()
            if name != "whole"
            for part in each["spec"]["containers"]
            if part.get("resources", {}).get("limits")
        )
