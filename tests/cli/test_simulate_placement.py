"""`cotenant simulate placement` as it is typed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import warm
from simulate.placement.dumps import node, part, pod, write

from cotenant.core.demand import Demand


def typed(
    *words: str, code: int = 0, given: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    done = warm.run(["simulate", "placement", *words], input=given, env={**os.environ, **environment})
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def dump(tmp_path: Path) -> str:
    web = [pod(f"web-{at}", part(6 + 2 * at), workload="team/deployment/web") for at in range(4)]
    train = pod("train", Demand(whole=1), cpu=16_000, workload="team/job/train")
    nodes = [
        node("a", (80, 80), [(web[0], [(0, 6)]), (web[1], [(0, 8)])]),
        node("b", (40, 40), [(web[2], [(0, 10)]), (train, [(1, 40)])], model="A100-40GB"),
        node("c", (24, 24), [(web[3], [(0, 12)]), (pod("plain"), [])], model="A10"),
        node("d", (16, 16), model="V100", cpu=2000),
    ]
    return write(tmp_path / "cluster.json", nodes, [pod("waits", part(60))])


def test_a_dump_gives_a_table_its_causes_and_a_plot(dump: str) -> None:
    said = typed("--cluster", dump).stdout
    assert "4 nodes with 8 GPUs (320Gi can be granted); 7 pods recorded" in said
    assert "\nPOLICY  CHANGE    ALLOCATED" in said
    assert "\nfrag    as it is  " in said
    assert "\nremainder too small" in said
    assert "\nGPU free, no CPU" in said or "\nno room on a GPU" in said
    assert "\n  allocated  " in said


def test_the_same_seed_gives_the_same_bytes_whatever_hashes_are(dump: str) -> None:
    words = ("--cluster", dump, "--policy", "frag,spread", "--add", "2xA10", "-o", "json")
    first = typed(*words, PYTHONHASHSEED="1").stdout
    assert first == typed(*words, PYTHONHASHSEED="2").stdout
    assert first != typed(*words, "--seed", "2").stdout
    told = json.loads(first)
    assert [(each["policy"], each["change"]) for each in told["rows"]] == [
        ("frag", None),
        ("spread", None),
        ("frag", "+2xA10"),
        ("spread", "+2xA10"),
    ]
    row = told["rows"][0]
    assert row["timeline"][-1]["allocated"] == row["runs"][0]["allocated"]
    assert set(row["strandedPercentBy"]) == {
        "cordoned",
        "pods",
        "cpu",
        "memory",
        "model",
        "remainder",
        "cards",
    }


def test_a_dump_can_be_piped_in_and_what_runs_can_stay(dump: str) -> None:
    said = typed(
        "--cluster", "-", "--keep-running", "--count", "1", "-o", "json", given=Path(dump).read_text()
    ).stdout
    (moment,) = json.loads(said)["rows"][0]["timeline"]
    assert moment["allocated"] == (6 + 8 + 10 + 40 + 12 + 60) * 2**30


def test_advised_sizes_leave_more_room(dump: str, tmp_path: Path) -> None:
    figures = [
        {
            "workload": "team/deployment/web",
            "version": "",
            "container": "c0",
            "advised": 3 * 2**30,
            "gpus": 1,
        },
        {"workload": "team/job/train", "version": "", "container": "c0", "advised": 8 * 2**30, "gpus": 1},
    ]
    (tmp_path / "advice.json").write_text(json.dumps({"advice": figures}))
    words = ("--cluster", dump, "--advice", str(tmp_path / "advice.json"), "--seed", "1", "--seed", "2")
    asked, advised = json.loads(typed(*words, "-o", "json").stdout)["rows"]
    assert advised["change"] == "advised sizes"
    assert advised["blockedPods"] < asked["blockedPods"]
    assert "advised sizes: for 5 of 7 recorded pods" in typed(*words).stdout


def test_a_picture_is_written_and_figures_are_shown_even_if_it_cannot_be(dump: str, tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    typed("--cluster", dump, "--policy", "frag,binpack", "--plot", str(path))
    texts = {each.text for each in ET.parse(path).iter() if each.text and each.text.strip()}
    assert {"frag", "binpack", "allocated", "remainder too small"} <= texts
    path.unlink()
    path.symlink_to("/dev/full")
    done = typed("--cluster", dump, "--plot", str(path), code=1)
    assert "\nfrag  " in done.stdout
    assert "cannot write" in done.stderr


def test_a_folder_is_no_file_for_a_picture(dump: str, tmp_path: Path) -> None:
    folder = tmp_path / "plot.svg"
    folder.mkdir()
    done = typed("--cluster", dump, "--plot", str(folder), code=2)
    assert "is a folder: name a file in it" in done.stderr
    assert not done.stdout


def test_progress_is_shown_on_a_terminal_only(dump: str) -> None:
    assert typed("--cluster", dump).stderr == ""
    primary, secondary = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "cotenant.cli.main", "simulate", "placement", "--cluster", dump],
        stdout=subprocess.DEVNULL,
        stderr=secondary,
        env={**os.environ, "TERM": "xterm"},
        check=True,
    )
    os.close(secondary)
    assert b"frag: 1 of " in os.read(primary, 1 << 16)
    os.close(primary)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--cluster: give either --cluster, a dump of `cotenant status -o json`, or --nodes"),
        (("--cluster", "DUMP", "--nodes", "DUMP"), "--cluster: give either"),
        (("--nodes", "n.csv"), "--pods: is missing"),
        (("--nodes", "none.csv", "--pods", "p.csv"), "--nodes: cannot read 'none.csv': No such file"),
        (("--cluster", "none.json"), "--cluster: cannot read 'none.json': No such file"),
        (("--cluster", "DUMP", "--pods", "DUMP"), "--pods: cluster.json line 1: no column cpu_milli or cpu"),
        (("--nodes", "n.csv", "--pods", "p.csv", "--keep-running"), "--keep-running: only a dump"),
        (("--cluster", "-", "--pods", "-"), "--pods: only one file can be standard input"),
        (("--cluster", "DUMP", "--policy", "best"), "--policy: 'best' is not known; there are frag, binpack"),
        (("--cluster", "DUMP", "--add", "A100"), "--add: 'A100' is not understood"),
        (("--cluster", "DUMP", *("--add", "1xA10") * 33), "--add: given 33 times"),
        (("--cluster", "DUMP", "--node-cpu", "4"), "--node-cpu: it is about nodes that are added"),
        (
            ("--cluster", "DUMP", "--add", "1xA10", "--node-cpu", "x"),
            "--node-cpu: 'x' is not an amount of CPU",
        ),
        (("--cluster", "DUMP", "--add", "1xA10", "--node-memory", "4"), "--node-memory: '4' is 4 bytes"),
        (("--cluster", "DUMP", "--load", "0"), "--load: 0 is not between 1 and 1000"),
        (("--cluster", "DUMP", "--load", "nan"), "--load: nan is not between 1 and 1000"),
        (("--cluster", "DUMP", "--count", "0"), "--count: 0 is not between 1 and 1000000"),
        (("--cluster", "DUMP", "--count", "9", "--load", "9"), "--load: --count says how many pods come"),
        (("--cluster", "DUMP", "--load", "9", "--arrivals", "trace"), "--load: with --arrivals trace"),
        (("--cluster", "DUMP", "--departures", "--arrivals", "trace"), "--departures: "),
        (("--cluster", "DUMP", "--advice", "DUMP"), "--advice: cluster.json: Object missing required field"),
        (("--cluster", "DUMP", "--plot", "x.png"), "--plot: 'x.png' does not end with .svg"),
        (("--cluster", "DUMP", *(f"--seed={at}" for at in range(33))), "--seed: 33 seeds"),
        (("--cluster", "DUMP", "--seed", "-1"), "--seed: -1 is not in the range x>=0"),
        (("--cluster", "DUMP", "--add", "4xA\x01:48Gi"), "--add: '4xA\\x01:48Gi' names no model"),
    ],
)
def test_a_bad_option_is_named_with_a_remedy(dump: str, words: tuple[str, ...], said: str) -> None:
    done = typed(*(dump if each == "DUMP" else each for each in words), code=2)
    assert done.stderr.startswith(f"cotenant: {said}")
    assert done.stderr.count("\n") == 1


def test_advice_of_what_is_asked_for_already_changes_nothing(dump: str, tmp_path: Path) -> None:
    asked = {"workload": "team/deployment/web", "advised": 6 * 2**30}
    (tmp_path / "a.json").write_text(json.dumps({"advice": [asked]}))
    said = typed("--cluster", dump, "--advice", str(tmp_path / "a.json"), "-o", "json").stdout
    assert "advised sizes: for 4 of 7" in json.loads(said)["notes"][0]


def test_a_size_of_added_cards_is_refused_where_none_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,65536,2,A10\n")
    (tmp_path / "p.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,10,1,500\n")
    words = ("--nodes", str(tmp_path / "n.csv"), "--pods", str(tmp_path / "p.csv"), "--add")
    said = typed(*words, "2x8xH100:80GB", code=2).stderr
    assert said == (
        "cotenant: --add: '2x8xH100:80GB' has a size, and the recorded cards have none: all count the same. "
        "Write 2x8xMODEL\n"
    )
    assert "as it is" in typed(*words, "2x8xH100").stdout


def test_advice_for_other_workloads_is_refused(dump: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"advice": [{"workload": "x", "advised": 1}]}))
    said = typed("--cluster", dump, "--advice", str(tmp_path / "a.json"), code=2).stderr
    assert "--advice: none of the 7 pods is of a workload that is named there" in said
