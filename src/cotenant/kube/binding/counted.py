"""Refuses a grant that is larger than what quotas have counted of the pod.

Resources of a pod cannot change after its creation, its annotations can. Quotas count resources; so whatever
an annotation says when the pod is bound, its grant must stay within its resources.
"""

from __future__ import annotations

from cotenant.core.errors import BadInput
from cotenant.core.units import format_apart
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant
from cotenant.kube.api.objects import Pod
from cotenant.kube.pods.requests import pod_requests


def granted_amounts(grant: PodGrant) -> dict[str, int]:
    """Returns what the grant is in native resources, over all its GPUs."""
    shares = [share for slot in grant.slots for share in slot.shares]
    return {
        names.GPU_MEMORY: sum(share.memory for share in shares if not share.whole),
        names.GPU_COMPUTE: sum(share.compute or 0 for share in shares),
        names.GPU: sum(share.whole for share in shares),
    }


def check_counted(pod: Pod, grant: PodGrant) -> None:
    """Raises BadInput if any resource is granted beyond the pod's requests, as quotas count them."""
    counted = pod_requests(pod)
    for name, amount in granted_amounts(grant).items():
        there = counted.get(name, 0)
        if amount > there:
            asked, had = (
                format_apart(amount, there) if name == names.GPU_MEMORY else (str(amount), str(there))
            )
            raise BadInput(
                f"{name}: the pod would be granted {asked}, and {had} was counted when it was created: "
                "delete it and create it anew, so that admission counts it"
            )
