"""Shows what the policy `frag` has learned: the demands that are likely to come, and from how many pods."""

from __future__ import annotations

from cotenant.core.learning import Typical, typical
from cotenant.kube.scheduling.learned import Learned
from cotenant.kube.scheduling.pod_statistics import PodStatistics
from cotenant.observe.view import LearnedView, TypicalView


def view_learned(learned: Learned, statistics: PodStatistics, trouble: str | None = None) -> LearnedView:
    """`trouble`: why what was kept of ended pods is not in it."""
    return LearnedView(
        pods=statistics.pods,
        since=statistics.ended.since,
        typical=tuple(_typical(each) for each in typical(learned.seen, learned.supply)),
        models=dict(learned.loss.usual),
        without_gpu=sum(count for kind, count in learned.seen.counts.items() if kind.demand is None),
        trouble=trouble,
    )


def _typical(each: Typical) -> TypicalView:
    demand, memory = each.demand, each.demand.memory
    return TypicalView(
        memory=None if memory is None else memory.bytes,
        percent=None if memory is None or memory.percent is None else str(memory.percent),
        gpus=demand.count,
        whole=memory is None,
        models=demand.models,
        cpu=each.cpu,
        host_memory=each.memory,
        pods=each.count,
        share=each.share,
        prior=each.prior,
    )
