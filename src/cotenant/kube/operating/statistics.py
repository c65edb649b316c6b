"""Learns for a command what the leader judges placements by: from pods that have ended, of which it keeps the
statistics, and from those that run.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.core.errors import CotenantError
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Unreachable
from cotenant.kube.api.objects import Pod
from cotenant.kube.binding.counting import running
from cotenant.kube.binding.statistics_map import read_statistics
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.pod_statistics import EndedPods, PodStatistics


async def read_ended(client: Client, namespace: str) -> tuple[EndedPods, str | None]:
    """Returns what was kept of pods that have ended, and what is wrong with it. Without the right to read it,
    only those that run count.
    """
    try:
        return await read_statistics(client, namespace) or EndedPods(), None
    except Unreachable:
        raise
    except CotenantError as error:
        return EndedPods(), str(error)


def teach(cluster: ClusterLedger, ended: EndedPods, pods: Iterable[Pod], dialects: Dialects) -> PodStatistics:
    """Has the ledger's policy learn from those that have ended and those that run."""
    statistics = PodStatistics(cluster.learned)
    statistics.begin(ended, running(pods, cluster, dialects))
    return statistics
