"""Adds up what pods take of a node beside its GPUs: CPU, memory, and a place among its pods.

Only the policy `frag` asks: free GPU memory on a node without CPU is of no use to anybody. Whether a pod fits
a node's CPU and memory is for kube-scheduler to decide.
"""

from __future__ import annotations

from cotenant.core.loss import Requests, Spare


class RequestSums:
    """Keeps the requests of every pod on a node, and their sums by node, whether or not the node is known."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Requests]] = {}
        self._sums: dict[str, tuple[int, int, int]] = {}

    def of(self, uid: str) -> tuple[str, Requests] | None:
        """Returns the node and the requests of a pod."""
        return self._pods.get(uid)

    def put(self, uid: str, node: str, requests: Requests) -> None:
        """Notes the requests of a pod, in place of what was noted."""
        self.drop(uid)
        self._pods[uid] = node, requests
        self._add(node, requests, 1)

    def drop(self, uid: str) -> str | None:
        """Forgets a pod. Returns the node that it was on."""
        known = self._pods.pop(uid, None)
        if known is None:
            return None
        self._add(*known, -1)
        return known[0]

    def left(self, node: str, has: Spare) -> Spare:
        """Returns what is left on a node that has so much: nothing without a place for another pod."""
        cpu, memory, pods = self._sums.get(node, (0, 0, 0))
        if pods >= has.pods:
            return Spare(0, 0, 0)
        return Spare(max(0, has.cpu - cpu), max(0, has.memory - memory), has.pods - pods)

    def _add(self, node: str, requests: Requests, times: int) -> None:
        cpu, memory, pods = self._sums.get(node, (0, 0, 0))
        sums = cpu + times * requests.cpu, memory + times * requests.memory, pods + times
        if sums[2]:
            self._sums[node] = sums
        else:
            del self._sums[node]
