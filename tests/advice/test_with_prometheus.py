"""Histories read from a real Prometheus: Cotenant's own series, and those of the DCGM exporter."""

from __future__ import annotations

from array import array

import pytest
from advice.backfilled import DAY, GIB, MIB, WEB, Backfilled

from cotenant.advice import container_series, dcgm
from cotenant.advice.prometheus_reading import Asked
from cotenant.core.rightsizing.advice import Advice, Rules, advise
from cotenant.core.rightsizing.history import Track
from cotenant.observe import prometheus as queries
from cotenant.observe.prometheus import PrometheusFailed, instant, ranged
from cotenant.observe.prometheus_http import HttpTransport

pytestmark = pytest.mark.asyncio


@pytest.fixture
def transport(prometheus: Backfilled) -> HttpTransport:
    return HttpTransport(prometheus.url)


@pytest.fixture
def asked(prometheus: Backfilled) -> Asked:
    return Asked(prometheus.now - 5 * DAY, prometheus.now)


def by_workload(found: tuple[Advice, ...]) -> dict[str, Advice]:
    return {each.group.owner.workload: each for each in found}


async def test_the_highest_of_each_bucket_is_read_chunk_by_chunk(
    prometheus: Backfilled, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = 'max_over_time(cotenant_container_memory_peak_bytes{pod="llm-0"}[300s])'
    first, end = prometheus.now - DAY, prometheus.now - DAY / 2
    found = {}
    for points in (10_000, 7):
        monkeypatch.setattr(queries, "MOST_POINTS", points)
        told: list[float] = []
        values: dict[str, list[tuple[float, float]]] = {}
        async for line in ranged(transport, query, first, end, 300.0, 2, told.append):
            values.setdefault(line.labels["uuid"], []).extend(zip(line.times, line.values, strict=True))
        found[points] = {uuid: sorted(each) for uuid, each in values.items()}
        assert told[-1] == 1.0
        assert told == sorted(told)
    assert found[7] == found[10_000]
    assert len(found[7]["GPU-2"]) == 144
    assert {value for _, value in found[7]["GPU-3"]} == {20 * GIB}


async def test_what_is_too_much_for_the_server_is_asked_for_in_smaller_pieces(
    prometheus: Backfilled, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is started with a limit of samples that a question over all of it passes."""
    monkeypatch.setattr(queries, "MOST_VALUES", 10**9)
    query = "max_over_time(cotenant_container_memory_peak_bytes[300s])"
    lines = ranged(transport, query, prometheus.now - 4 * DAY, prometheus.now, 60.0)
    starts = [line.times[0] async for line in lines]
    assert len(set(starts)) > 3
    assert max(starts) > prometheus.now - DAY


async def test_an_error_in_a_query_is_told_with_the_servers_words(transport: HttpTransport) -> None:
    with pytest.raises(PrometheusFailed, match=r"refuses the query sum\(: .*parse error"):
        await instant(transport, "sum(", 1e9)


async def test_own_series_have_workload_version_limit_and_every_start(
    transport: HttpTransport, asked: Asked
) -> None:
    assert await container_series.present(transport, asked)
    found = await container_series.read_containers(transport, asked)
    report = advise(found.groups, found.step, Rules(DAY), found.past)
    advice = by_workload(report.advice)
    assert set(advice) == {
        "team/deployment/web",
        "team/statefulset/llm",
        "team/daemonset/embed",
        "team/pod/notebook",
    }
    web = advice["team/deployment/web"]
    assert web.group.owner.version == WEB
    assert web.evidence.peak == round(10.9 * GIB)
    assert web.evidence.peak_of == f"web-{WEB}-x7k2q"
    assert web.evidence.starts == 3
    assert (web.evidence.instances, web.evidence.alive) == (3, 3)
    assert web.now == 24 * GIB
    assert web.target is not None
    assert 10.9 * 1.15 * GIB <= web.target < 16 * GIB
    assert web.advised == 18 * GIB, "lower in steps"
    assert web.group.former == 14 * GIB
    assert [each.owner.version for each in found.past] == ["68bd4c94d"]


async def test_one_start_is_too_few_and_a_limit_below_the_peak_is_told(
    transport: HttpTransport, asked: Asked
) -> None:
    found = await container_series.read_containers(transport, asked)
    advice = by_workload(advise(found.groups, found.step, Rules(DAY), began=found.began).advice)
    llm, notebook = advice["team/statefulset/llm"], advice["team/pod/notebook"]
    assert llm.reason == "few-starts"
    assert "it has used 30Gi and asks for 20Gi" in llm.why
    assert notebook.reason == "short-history"
    advice = by_workload(advise(found.groups, found.step, Rules(DAY, min_starts=1)).advice)
    llm = advice["team/statefulset/llm"]
    assert llm.gpus == 2
    assert llm.advised == llm.target
    assert llm.target is not None
    assert llm.target >= 2 * 30 * 1.15 * GIB, "the fuller of the two, for both"


async def test_a_namespace_can_be_named(transport: HttpTransport, asked: Asked) -> None:
    nobody = Asked(asked.first, asked.end, "other")
    assert not (await container_series.read_containers(transport, nobody)).groups
    team = Asked(asked.first, asked.end, "team")
    assert len((await container_series.read_containers(transport, team)).groups) == 4
    found = await dcgm.read_dcgm(transport, team)
    assert len(found.groups) == 5
    (host,) = [each for each in found.groups if each.owner.workload == "team/statefulset/host"]
    assert "it shares a GPU with guest-0" in host.shared_with, "of another namespace"


async def test_what_the_cluster_knows_of_pods_wins_over_names(transport: HttpTransport, asked: Asked) -> None:
    from cotenant.advice.pod_names import PodWorkload

    pods = {("team", "notebook"): PodWorkload("jupyter", "mine", "1")}
    found = await container_series.read_containers(transport, asked, pods)
    assert "team/jupyter/mine" in {each.owner.workload for each in found.groups}


async def test_dcgm_figures_are_those_of_pods_that_have_a_gpu_for_themselves(
    transport: HttpTransport, asked: Asked
) -> None:
    assert await dcgm.present(transport, asked)
    found = await dcgm.read_dcgm(transport, asked)
    report = advise(found.groups, found.step, Rules(DAY), began=found.began)
    advice = by_workload(report.advice)
    assert set(advice) == {
        "team/deployment/web",
        "team/statefulset/sliced",
        "team/statefulset/turns",
        "team/statefulset/host",
        "other/statefulset/guest",
        "team/statefulset/mig",
    }
    web = advice["team/deployment/web"]
    assert web.evidence.peak == 20000 * MIB
    assert web.evidence.instances == 2
    assert web.evidence.starts == 2
    assert web.now == 80 * GIB, "used and free"
    assert advice["team/statefulset/mig"].evidence.peak == 9000 * MIB, "each instance of a MIG by itself"
    assert found.whole


async def test_pods_that_share_a_gpu_by_time_slicing_get_no_figure(
    transport: HttpTransport, asked: Asked
) -> None:
    found = await dcgm.read_dcgm(transport, asked)
    advice = by_workload(advise(found.groups, found.step, Rules(DAY), began=found.began).advice)
    sliced = advice["team/statefulset/sliced"]
    assert sliced.reason == "not-its-own"
    assert sliced.why.startswith("it shares a GPU with sliced-0, sliced-1, and the exporter only knows")
    assert any("4 pods share a GPU by time-slicing:" in note for note in found.notes)


async def test_pods_that_share_a_gpu_have_figures_where_the_exporter_counts_by_process(
    transport: HttpTransport, asked: Asked
) -> None:
    found = await dcgm.read_dcgm(transport, asked)
    assert any("2 pods share a GPU by time-slicing; the exporter counts each" in note for note in found.notes)
    assert found.cards["GPU-a5"] == 81920 * MIB, "used and free of the GPU, whatever a pod has of it"
    report = advise(found.groups, found.step, Rules(DAY), began=found.began)
    turns = by_workload(report.advice)["team/statefulset/turns"]
    assert turns.reason is None
    assert (turns.evidence.peak, turns.evidence.peak_of) == (20000 * MIB, "turns-1")
    assert turns.now is None, "a turn has no amount"
    assert turns.advised == turns.target


def track(*levels: float | None) -> Track:
    """A level for each bucket from the hundredth on; None where there is no sample."""
    seen = [(100 + at, level) for at, level in enumerate(levels) if level is not None]
    peaks = array("d", [level for _, level in seen])
    buckets = array("q", [bucket for bucket, _ in seen])
    at = buckets[peaks.index(max(peaks))] * 300.0
    return Track("pod", "GPU-1", buckets, peaks, len(peaks), max(peaks), at)


@pytest.mark.parametrize(
    ("pod", "gpu", "own"),
    [
        ((4, 5, 4, 4), (9, 9, 9, 9), [4, 5, 4, 4]),
        ((9, 9, 9, 4, 5, 4, 4), (None, None, None, 9, 9, 9, 9), [4, 5, 4, 4]),
        ((9, 9, 9, 9), (9, 9, 9, 9), None),
        ((4, 4, 4, 4), (None, None, None, 0), None),
        ((4, 4, 4, 4), (0, 9, 9, 9), None),
        ((4, 0, 4, 4), (9, 9), None),
    ],
    ids=[
        "each by its processes",
        "since the exporter counts so",
        "the GPU's own figure",
        "the GPU when its pods had gone",
        "more than the GPU",
        "too few points",
    ],
)
async def test_what_is_a_pods_own_of_a_shared_gpu(
    pod: tuple[float, ...], gpu: tuple[float | None, ...], own: list[float] | None
) -> None:
    found = dcgm.own_part(track(*pod), track(*gpu), 300.0)
    assert (found and list(found.peaks)) == own
    if found is not None and own is not None:
        assert (found.peak, found.peak_at) == (5.0, found.buckets[own.index(5)] * 300.0)
    assert dcgm.own_part(track(*pod), None, 300.0) is None
