"""A dump of a cluster: what is read of it, what stays on its node, and what is said of one that is damaged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from kube.operating import clusters
from simulate.placement.dumps import GI, node, part, pod, write

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.grant import Share
from cotenant.core.loss import Spare
from cotenant.dialects import names
from cotenant.kube.operating.status.snapshot import document, snapshot
from cotenant.simulate.placement.cluster import SimulatedCluster
from cotenant.simulate.placement.dump import read_dump


@pytest.fixture
def dump(tmp_path: Path) -> str:
    runs, train = pod("runs", part(20, models=("A100",)), created=20.0), pod("train", Demand(whole=1))
    agent = pod("agent", cpu=500, pinned=True)
    plain = pod("plain", cpu=3000, memory=2 * GI, created=10.0)
    nodes = [
        node("a", pods=[(runs, [(0, 20)]), (train, [(1, 80)]), (agent, []), (plain, [])], outside=0),
        node("b", (16,), cordoned=True, outside=3),
        node("c", (24,), problem="XID 79"),
    ]
    return write(tmp_path / "cluster.json", nodes, [pod("waits", part(8, gpus=2), created=30.0)])


def test_what_the_status_command_writes_is_read_as_it_was(dump: str) -> None:
    recording = read_dump(dump)
    a, b, c = recording.nodes
    assert (a.has, b.has.pods) == (Spare(63_500, 255 * GI, 109), 110)
    assert [gpu.memory // GI for each in (a, b, c) for gpu in each.gpus] == [80, 80, 16, 24]
    assert (b.cordoned, b.outside, c.gpus[0].healthy) == (True, {"GPU-b-0": 3 * GI}, False)
    by_name = {each.uid.removeprefix("uid-") or "waits": each for each in recording.pods}
    assert list(by_name) == ["train", "plain", "runs", "waits"], "the oldest first"
    runs = by_name["runs"]
    assert runs.pod.demands == (Demand(Memory(bytes=20 * GI), models=("A100",)),)
    assert (runs.node, runs.shares, runs.containers) == ("a", (Share("GPU-a-0", 20 * GI),), ("c0",))
    assert by_name["train"].shares == (Share("GPU-a-1", 80 * GI, whole=True),)
    assert (by_name["plain"].pod.cpu, by_name["plain"].pod.demands) == (3000, ())
    assert (by_name["waits"].node, by_name["waits"].pod.demands[0].gpus) == ("", 2)


def test_what_is_read_can_be_kept_where_it_is(dump: str) -> None:
    recording = read_dump(dump)
    cluster = SimulatedCluster(recording.nodes)
    for each in recording.pods:
        if each.node:
            cluster.keep(each.uid, each.node, each.pod, each.shares)
    free = {gpu.uuid: cluster.ledger.ledger("a").free(gpu.uuid) // GI for gpu in recording.nodes[0].gpus}
    assert free == {"GPU-a-0": 60, "GPU-a-1": 0}
    assert cluster.ledger.spare("a") == Spare(63_500 - 5000, 255 * GI - 4 * GI, 109 - 3)
    assert cluster.place("next", recording.pods[-1].pod) is None, "b is cordoned, c is sick, a has one card"
    cluster.end("uid-train")
    assert cluster.place("next", recording.pods[-1].pod) == "a"


def test_nodes_and_pods_of_an_api_server_arrive_through_the_dump(tmp_path: Path) -> None:
    there = clusters.node("n", [16 * GI] * 2)
    there.status.allocatable.update(cpu="8", memory="32Gi", pods="20")
    pods = [
        clusters.pod("split", 8 * GI, on="n", cards=(0, 1), annotations={names.gpu_count("main"): "2"}),
        clusters.pod("waits", whole=True),
    ]
    view = snapshot([there], pods, all_pods=True)
    (tmp_path / "d.json").write_text(json.dumps(document(view.nodes, "GiB", view.pending)))
    recording = read_dump(str(tmp_path / "d.json"))
    assert recording.nodes[0].has == Spare(8000, 32 * GI, 20)
    split, waits = recording.pods
    assert split.pod.demands == (Demand(Memory(bytes=8 * GI), 2),)
    assert [(share.uuid, share.memory) for share in split.shares] == [
        (clusters.card_of("n", at), 4 * GI) for at in (0, 1)
    ]
    assert (split.workload, waits.node, waits.pod.demands) == ("team/pod/split", "", (Demand(whole=1),))


def test_a_pod_of_a_daemon_set_that_holds_gpu_memory_stays(tmp_path: Path) -> None:
    monitor = pod("monitor", part(2), pinned=True)
    recording = read_dump(write(tmp_path / "d.json", [node("a", (80,), [(monitor, [(0, 2)])])]))
    assert recording.nodes[0].outside == {"GPU-a-0": 2 * GI}
    assert recording.pods == ()


def test_a_dump_may_be_zipped_and_on_one_line(dump: str, tmp_path: Path) -> None:
    text = json.dumps(json.loads(Path(dump).read_text()))
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(text.encode()))
    assert read_dump(str(tmp_path / "d.json.gz")) == read_dump(dump)


def broken(document: dict[str, Any], *path: Any, value: Any) -> str:
    at = document
    for each in path[:-1]:
        at = at[each]
    at[path[-1]] = value
    return json.dumps(document, indent=2)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("nodes", 0, "gpus", 1, "memory"), "80Gi", r"got `str` at `nodes\[0\]\.gpus\[1\]\.memory`"),
        (("nodes", 0, "gpus", 1, "memory"), -1, r">= 0 at `nodes\[0\]\.gpus\[1\]\.memory`"),
        (("nodes", 1, "name"), "a", "node 'a' is there twice"),
        (("nodes", 1, "gpus", 0, "uuid"), "GPU-a-0", "GPU 'GPU-a-0' is there twice"),
        (("pending", 0, "uid"), "uid-runs", "pod 'uid-runs' is there twice"),
        (("nodes", 0, "pods", 0, "demands", 0, "gpus"), 0, "demands of pod 'team/runs': gpus: 0 is not"),
        (("nodes", 0, "pods", 0, "demands", 0, "percent"), "1e9999999", "at `nodes"),
        (("nodes", 0, "pods", 0, "cpu"), 2**70, r"at `nodes\[0\]\.pods\[0\]\.cpu`"),
        (("nodes",), [], "no node with a GPU"),
        (("nodes", 0, "allocatable"), None, r"got `null` at `nodes\[0\]\.allocatable`"),
    ],
)
def test_a_dump_that_is_damaged_is_refused_with_the_field(
    dump: str, tmp_path: Path, path: tuple[Any, ...], value: Any, said: str
) -> None:
    (tmp_path / "bad.json").write_text(broken(json.loads(Path(dump).read_text()), *path, value=value))
    with pytest.raises(BadInput, match=rf"^cluster: bad\.json.*{said}.*cotenant status -o json") as error:
        read_dump(str(tmp_path / "bad.json"))
    assert "\n" not in str(error.value)


def test_a_dump_that_is_cut_off_is_refused_with_the_line(dump: str, tmp_path: Path) -> None:
    lines = Path(dump).read_text().splitlines()
    (tmp_path / "cut.json").write_text("\n".join([*lines[:5], "oops", *lines[5:]]))
    with pytest.raises(BadInput, match=r"cut\.json: line 6 is not JSON"):
        read_dump(str(tmp_path / "cut.json"))


def test_a_dump_of_a_version_that_did_not_tell_of_pods_is_refused(tmp_path: Path) -> None:
    old = {"nodes": [{"name": "a", "gpus": []}]}
    (tmp_path / "old.json").write_text(json.dumps(old))
    with pytest.raises(
        BadInput, match=r"missing required field `allocatable` at `nodes\[0\]`: write it anew"
    ):
        read_dump(str(tmp_path / "old.json"))
