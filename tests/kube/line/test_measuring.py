"""What is exported of the line: who waits longest, and the first by name; nothing of a server that does not lead."""

import asyncio

from kube.builders import GI, pod_json
from kube.line.line_scene import cluster, refused_pods, run, takes
from prometheus_client.parser import text_string_to_metric_families

from cotenant.kube.line.measuring import LineMetrics
from cotenant.observe.exposition import Registry, text_of
from cotenant.observe.view_metrics import MOST_WAITING

LONGEST, SECONDS = "cotenant_scheduler_longest_wait_seconds", "cotenant_scheduler_waiting_pod_seconds"
MEMORY = "cotenant_scheduler_waiting_pod_memory_bytes"


def told(registry: Registry) -> dict[str, dict[str, float]]:
    """Values by name and pod."""
    families = text_string_to_metric_families(text_of(registry).decode())
    return {each.name: {one.labels.get("pod", ""): one.value for one in each.samples} for each in families}


def test_the_longest_wait_and_the_first_in_line_are_exported_by_the_leader_alone():
    async def main():
        at, registry, leads = cluster(), Registry(), [True]
        LineMetrics(at.line, lambda: leads[0]).register(registry)
        assert told(registry) == {LONGEST: {"": 0}, SECONDS: {}, MEMORY: {}}
        takes(at, "x", 14)
        await refused_pods(at, *(pod_json(f"p{i:02}", "4Gi") for i in range(MOST_WAITING + 10)))
        await asyncio.sleep(100)
        shown = told(registry)
        first = at.line.places()[0].pod.metadata.name
        assert len(shown[SECONDS]) == len(shown[MEMORY]) == MOST_WAITING
        assert shown[LONGEST][""] == max(shown[SECONDS].values())
        assert shown[SECONDS][first] >= 100
        assert set(shown[MEMORY].values()) == {4 * GI}
        leads[0] = False
        assert told(registry) == {LONGEST: {"": 0}, SECONDS: {}, MEMORY: {}}

    run(main)
