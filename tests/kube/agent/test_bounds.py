"""Hostile and many: whatever pods are called and however many there are, a scrape is valid, bounded and complete."""

from __future__ import annotations

import time

from kube.agent.nodes import CARDS, GIB, A, make, shimmed
from prometheus_client.parser import text_string_to_metric_families

from cotenant.core.grant import Share
from cotenant.hardware.nvml import CardProcess, CardReading
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import PodProcess, Sight
from cotenant.kube.agent.containers.measuring import with_measured
from cotenant.kube.agent.containers.use import ContainerUse
from cotenant.kube.agent.metrics import AgentHealth, Figures, expose
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.snapshot import snapshot
from cotenant.kube.api.objects import ContainerStatus, Meta, OwnerReference, Pod, PodSpec, PodStatus
from cotenant.observe.view_metrics import MOST_CONTAINERS

HEALTH = AgentHealth(registered=True, pod_resources=True, api=True, published=1, version="1")


def hostile(at: int) -> Pod:
    """The API server bounds names of pods; it does not bound those of owners."""
    owner = OwnerReference('Kind"\n', 'a"b\\c\n{d="e"} 1\n# TYPE x counter' * 8, controller=True)
    meta = Meta(
        name=f"pod-{at}",
        namespace="web",
        uid=f"u-{at}",
        labels={"pod-template-hash": f'7d9"{at % 3}'},
        owner_references=(owner,),
    )
    status = ContainerStatus("main", container_id=f"containerd://{at:064d}")
    return Pod(meta, PodSpec(node_name="n1"), PodStatus("Running", container_statuses=(status,)))


def seen(pods: list[Pod]) -> Sight:
    processes = tuple(CardProcess(1000 + at, GIB) for at in range(len(pods)))
    card = CardReading(CARDS[A], GIB * len(pods), processes)
    owners = tuple(
        PodProcess(1000 + at, 1, Owner(pod.metadata.uid, f"cri-{at:064d}.scope"))
        for at, pod in enumerate(pods)
    )
    return Sight((card,), {}, 0.0, granted=True, processes={A: owners})


def scrape(use: ContainerUse, sight: Sight, pods: list[Pod]) -> dict[str, dict[tuple[str, ...], float]]:
    now = PodsNow(tuple(pods))
    view = with_measured(snapshot("n1", sight, now, use.slots.read(), 0.0), use.measured, now)
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(expose(Figures(view, HEALTH, time.time(), 1.0)).decode()):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in sorted(sample.labels))
            assert labels not in found.setdefault(sample.name, {})
            found[sample.name][labels] = sample.value
    return found


def test_a_thousand_pods_with_hostile_owners_are_all_there_and_add_up(tmp_path):
    pods = [hostile(at) for at in range(1000)]
    use, sight = ContainerUse(shimmed(tmp_path / "slots")), seen(pods)
    use.look(sight, PodsNow(tuple(pods)))
    told = scrape(use, sight, pods)
    used = told["cotenant_container_memory_used_bytes"]
    assert (len(used), sum(used.values())) == (1000, 1000 * GIB)
    assert set(told["cotenant_gpu_memory_outside_bytes"].values()) == {0}
    assert told["cotenant_metrics_cut"] == {("containers",): 0, ("labels",): 1000}
    assert len({labels[4] for labels in told["cotenant_container_info"]}) == 1, "one owner is one workload"


def test_more_containers_than_are_exported_are_counted_and_no_slot_is_missing(tmp_path):
    slots = shimmed(tmp_path / "slots")
    for at in range(3):
        make(slots, f"slot-{at:04d}", Share(A, GIB), uid=f"g-{at}", name=f"granted-{at}")
    pods = [hostile(at) for at in range(MOST_CONTAINERS + 7)]
    use, sight = ContainerUse(slots), seen(pods)
    use.look(sight, PodsNow(tuple(pods)))
    told = scrape(use, sight, pods)
    assert len(told["cotenant_container_info"]) == MOST_CONTAINERS
    assert len(told["cotenant_container_memory_limit_bytes"]) == 3
    assert told["cotenant_metrics_cut"][("containers",)] == 10


def test_counters_of_slots_outlive_the_agent_and_what_only_a_survey_saw_begins_anew(tmp_path):
    pods = [hostile(0)]
    first = ContainerUse(shimmed(tmp_path / "slots"))
    first.look(seen(pods), PodsNow(tuple(pods)))
    nothing = Sight(seen([]).cards, {}, 0.0, granted=True)
    first.look(nothing, PodsNow(tuple(pods)))
    assert list(scrape(first, nothing, pods)["cotenant_container_memory_peak_bytes"].values()) == [GIB]
    second = ContainerUse(shimmed(tmp_path / "slots"))
    second.look(nothing, PodsNow(tuple(pods)))
    assert "cotenant_container_memory_peak_bytes" not in scrape(second, nothing, pods)
