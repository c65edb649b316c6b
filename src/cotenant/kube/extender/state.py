"""The ledger of a server, as JSON, for whoever compares it with what the API server says.

By UIDs: who may know what they are called reads that elsewhere.
"""

from __future__ import annotations

import msgspec

from cotenant.kube.scheduling.cluster_ledger import ClusterLedger


def state(cluster: ClusterLedger, *, leads: bool) -> bytes:
    charged = {}
    for uid, (node, grant) in cluster.pods.items():
        gpus: dict[str, int] = {}
        for slot in grant.slots:
            for share in slot.shares:
                gpus[share.uuid] = gpus.get(share.uuid, 0) + share.memory
        charged[uid] = {"node": node, "gpus": gpus}
    holds = {uid: {"node": node, "gpus": cards} for uid, (node, cards) in cluster.holds().items()}
    return msgspec.json.encode({"leads": leads, "charged": charged, "holds": holds})
