"""Shows a server's ledger and line as JSON, to compare them with what the API server says.

Pods are named by UID only: who may know their names reads them from the API server.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cotenant.kube.scheduling.cluster_ledger import ClusterLedger


def state(cluster: ClusterLedger, line: Sequence[str] = (), *, leads: bool) -> bytes:
    """Encodes who is charged for what, which cards are held for whom, and who is in line, the head first."""
    charged = {}
    for uid, (node, grant) in cluster.pods.items():
        gpus: dict[str, int] = {}
        for slot in grant.slots:
            for share in slot.shares:
                gpus[share.uuid] = gpus.get(share.uuid, 0) + share.memory
        charged[uid] = {"node": node, "gpus": gpus}
    holds = {uid: {"node": node, "gpus": cards} for uid, (node, cards) in cluster.holds().items()}
    return msgspec.json.encode({"leads": leads, "charged": charged, "holds": holds, "line": line})
