"""Labels of pods as exporters of all ages and scrape configurations leave them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from cotenant.advice import container_series, dcgm
from cotenant.advice.dcgm import NotAttributed
from cotenant.advice.prometheus_reading import Asked
from cotenant.core.errors import BadInput
from cotenant.hardware import slots
from cotenant.observe.prometheus import Answer

pytestmark = pytest.mark.asyncio
MIB = 1 << 20
END = 1_700_000_000.0
QUERY = re.compile(r"(?:count\()?(?:last|max)_over_time\((\w+)(?:\{(\w+)=\"([\w-]+)\"\})?\[\w+\]\)\)?")

BOTH = re.compile(
    r"max_over_time\(\(max by \(([\w, ]+)\) \((\w+)\) \+ max by \(\1\) \((\w+)\)\)\[\w+:\w+\]\)"
)
Row = tuple[dict[str, str], float]


@dataclass
class Series:
    """Constant series by metric, which answer the questions that are asked here."""

    found: dict[str, list[Row]] = field(default_factory=dict)
    name: str = "a test"

    def add(self, metric: str, value: float, **labels: str) -> None:
        self.found.setdefault(metric, []).append((labels, value))

    def rows(self, query: str) -> list[Row]:
        if both := BOTH.fullmatch(query):
            by = both[1].split(", ")
            one, two = self.highest(both[2], by), self.highest(both[3], by)
            return [(dict(key), one[key] + two[key]) for key in one.keys() & two.keys()]
        asked = QUERY.fullmatch(query)
        assert asked, query
        metric, label, wanted = asked.groups()
        return [
            (labels, value)
            for labels, value in self.found.get(metric, [])
            if not label or labels.get(label) == wanted
        ]

    def highest(self, metric: str, by: list[str]) -> dict[tuple[tuple[str, str], ...], float]:
        found: dict[tuple[tuple[str, str], ...], float] = {}
        for labels, value in self.found.get(metric, []):
            key = tuple((each, labels[each]) for each in by if each in labels)
            found[key] = max(found.get(key, 0.0), value)
        return found

    async def get(self, path: str, query: Mapping[str, str]) -> Answer:
        rows = self.rows(query["query"])
        result: list[dict[str, Any]]
        if query["query"].startswith("count("):
            result = [{"metric": {}, "value": [END, str(len(rows))]}] if rows else []
        elif path.endswith("query_range"):
            step = float(query["step"])
            count = int((float(query["end"]) - float(query["start"])) / step) + 1
            times = [float(query["start"]) + at * step for at in range(count)]
            result = [
                {"metric": labels, "values": [[at, str(value)] for at in times]} for labels, value in rows
            ]
        else:
            result = [{"metric": labels, "value": [END, str(value)]} for labels, value in rows]
        kind = "matrix" if path.endswith("query_range") else "vector"
        return Answer(
            200, json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()
        )


ASKED = Asked(END - 86400, END)


@pytest.mark.parametrize(
    ("metric", "labels"),
    [
        ("DCGM_FI_DEV_FB_USED", {"namespace": "team", "pod": "web-0", "container": "main"}),
        (
            "DCGM_FI_DEV_FB_USED",
            {
                "namespace": "gpu-operator",
                "pod": "nvidia-dcgm-exporter-x7k2p",
                "container": "exporter",
                "exported_namespace": "team",
                "exported_pod": "web-0",
                "exported_container": "main",
            },
        ),
        ("dcgm_fb_used", {"pod_namespace": "team", "pod_name": "web-0", "container_name": "main"}),
    ],
)
async def test_a_pod_is_found_in_the_labels_of_every_age(metric: str, labels: dict[str, str]) -> None:
    series = Series()
    series.add(metric, 5000, UUID="GPU-1", **labels)
    series.add(metric, 5000, UUID="GPU-1", pod="", namespace="", container="")
    series.add(
        metric,
        0,
        UUID="GPU-2",
        **{
            key: value
            for key, value in labels.items()
            if key in ("pod", "namespace") and "exported_pod" in labels
        },
    )
    assert await dcgm.present(series, ASKED)
    found = await dcgm.read_dcgm(series, ASKED)
    (group,) = found.groups
    assert (group.owner.workload, group.owner.container) == ("team/statefulset/web", "main")
    assert group.tracks[0].peak == 5000 * MIB
    assert len(group.tracks) == 1, "the GPU's own series is not counted once more"


async def test_two_scrapes_of_one_exporter_are_one_pod() -> None:
    series = Series()
    for prometheus in ("a", "b"):
        series.add(
            "DCGM_FI_DEV_FB_USED", 5000, UUID="GPU-1", namespace="t", pod="p", prometheus_replica=prometheus
        )
    (group,) = (await dcgm.read_dcgm(series, ASKED)).groups
    assert len(group.tracks) == 1
    assert not group.shared_with


@pytest.mark.parametrize("metric", ["DCGM_FI_DEV_FB_USED", container_series.PEAK])
async def test_pods_of_one_name_in_several_clusters_are_replicas_and_have_one_gpu_each(metric: str) -> None:
    series = Series()
    own = {"namespace": "team", "pod": "web-0", "container": "main"}
    for cluster in ("east", "west"):
        gpu = f"GPU-{cluster}"
        series.add(metric, 5000, UUID=gpu, uuid=gpu, cluster=cluster, **own)
        series.add(container_series.LIMIT, 9 * MIB, uuid=gpu, cluster=cluster, **own)
    read = dcgm.read_dcgm if metric.startswith("DCGM") else container_series.read_containers
    (group,) = (await read(series, ASKED)).groups
    assert group.owner.workload == "team/statefulset/web"
    assert set(group.instances) == {"east/web-0", "west/web-0"}
    assert group.gpus == 1
    if read is container_series.read_containers:
        assert group.now == 9 * MIB


async def test_an_exporter_without_pods_is_told_how_to_get_them() -> None:
    series = Series()
    series.add(
        "DCGM_FI_DEV_FB_USED", 5000, UUID="GPU-1", namespace="gpu-operator", pod="nvidia-dcgm-exporter-x7k2p"
    )
    with pytest.raises(
        NotAttributed, match="1 series of DCGM_FI_DEV_FB_USED and none names a pod: set DCGM_EXPORTER"
    ):
        await dcgm.read_dcgm(series, ASKED)


async def test_gpus_without_a_uuid_are_told_apart_by_their_host() -> None:
    series = Series()
    for host in ("a", "b"):
        series.add("DCGM_FI_DEV_FB_USED", 5000, Hostname=host, gpu="0", namespace="t", pod=f"p-{host}")
    groups = (await dcgm.read_dcgm(series, ASKED)).groups
    assert [each.shared_with for each in groups] == ["", ""]


@pytest.mark.parametrize("claimed", [9e30, float(slots.MOST_BYTES)])
@pytest.mark.parametrize("exported", [False, True])
async def test_own_series_without_honoured_labels(exported: bool, claimed: float) -> None:
    series = Series()
    prefix = "exported_" if exported else ""
    own = {f"{prefix}namespace": "team", f"{prefix}pod": "web-0", f"{prefix}container": "main"}
    if exported:
        own |= {"namespace": "cotenant-system", "pod": "cotenant-agent-x7k2p"}
    series.add(container_series.USED, 7 * MIB, uuid="GPU-1", **own)
    series.add(container_series.USED, claimed, uuid="GPU-2", **own)
    series.add(container_series.LIMIT, 9 * MIB, uuid="GPU-1", **own)
    series.add(container_series.DENIED, 4, **own)
    team = Asked(ASKED.first, ASKED.end, "team")
    found = await container_series.read_containers(series, team)
    (group,) = found.groups
    assert group.owner.workload == "team/statefulset/web"
    assert group.now == 9 * MIB
    assert group.denied == 4
    assert max(each.peak for each in group.tracks) == 7 * MIB, "no GPU has as much"
    assert "there is no cotenant_container_memory_peak_bytes" in found.notes[0]


async def test_a_namespace_is_a_name_and_no_query() -> None:
    with pytest.raises(BadInput, match=r"namespace: .* is not a name of a namespace"):
        Asked(0, 1, 'x"} or up{a="')
