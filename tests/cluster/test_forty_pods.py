"""Forty pods at once on one node: each gets its own slot, its own card and its own limit, and nobody another's.

COTENANT_ROUNDS says how often.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster.cotenant.auditor import Auditor
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import container, pod, pods_of, running
from cluster.cotenant.tenants import account, mismatches, told
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster

from cotenant.hardware.standin.driver import StandIn

SIZES = [1000 + 250 * step for step in range(20)]
"""MiB. Twice all of them fill two cards of 80 GiB to four fifths."""
ROUNDS = int(os.environ.get("COTENANT_ROUNDS", "1"))


@pytest.fixture(scope="module")
def cotenant(start_cotenant, cluster: Cluster) -> Installation:
    installation = start_cotenant(servers=2)
    installation.start_agent(cluster.node.name, "2x80GiB")
    return installation


@pytest.mark.timeout(300)
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_of_forty_pods_in_twenty_sizes_each_is_stopped_at_its_own(
    round_: int, cotenant: Installation, cluster: Cluster, namespace: str
):
    image = cluster.python_image()
    names = [f"{size}mi-{twin}" for size in SIZES for twin in "ab"]

    def make(name: str) -> Object:
        size = name.partition("-")[0].replace("mi", "Mi")
        return cluster.api.create(
            pods_of(namespace), pod(name, container(image=image, program="tenant.py", memory=size))
        )

    with Auditor(cluster.api) as auditor, ThreadPoolExecutor(8) as pool:
        list(pool.map(make, names))
        pods = [running(cluster.api, namespace, name, 180) for name in names]
        said = [told(cluster, each) for each in pods]
        counted = account(StandIn(cotenant.standin()))
        wrong = [
            what for each, heard in zip(pods, said, strict=True) for what in mismatches(heard, each, counted)
        ]
        assert wrong == []
        assert len(counted) == 40
        assert len({heard.owner for heard in said}) == 40
        assert auditor.violations == []
        cluster.api.request("DELETE", pods_of(namespace))
        for name in names:
            cluster.api.until_gone(f"{pods_of(namespace)}/{name}")
