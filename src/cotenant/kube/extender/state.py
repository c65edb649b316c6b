"""Encodes a server's ledger and line for /state, where they are compared with what the API server has.

It is the ledger itself and not the view of the cluster: the view is gathered from the API, so a server that
reported it would always agree with the API.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.observe.state import Charge, Hold, ServerState, TermState, encode


def state(
    cluster: ClusterLedger, line: Sequence[str] = (), term: TermState | None = None, *, leads: bool
) -> bytes:
    """Encodes which pods are charged for what, which GPUs are held for whom, and the pods in line."""
    charged = {}
    for uid, (node, grant) in cluster.pods.items():
        gpus: dict[str, int] = {}
        for slot in grant.slots:
            for share in slot.shares:
                gpus[share.uuid] = gpus.get(share.uuid, 0) + share.memory
        charged[uid] = Charge(node, gpus)
    holds = {uid: Hold(node, tuple(gpus)) for uid, (node, gpus) in cluster.holds().items()}
    return encode(ServerState(leads, charged, holds, tuple(line), term))
