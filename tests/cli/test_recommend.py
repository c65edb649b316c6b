"""`cotenant recommend`, called as people and scripts call it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import warm
import yaml
from advice.backfilled import Backfilled
from cli.conftest import Terminal

GIB = 1 << 30
HEADER = "timestamp,workload,container,bytes\n"
NAME = [sys.executable, "-m", "cotenant.cli.main", "recommend"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(tmp_path), "COTENANT_HOME": str(tmp_path / "home"), "TZ": "UTC"}


@pytest.fixture
def recommend(environ: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    def call(*arguments: object, code: int = 0, **more: object) -> subprocess.CompletedProcess[str]:
        done = warm.run(["recommend", *arguments], env=environ, **more)  # type: ignore[arg-type]
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return call


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A day of two workloads: replicas that are alike, and one container that began an hour ago."""
    path = tmp_path / "samples.csv"
    rows = [
        f"{1_700_000_000 + at * 60},web,web-{pod},{8 * GIB + (at % 90) * 1000}\n"
        for at in range(1440)
        for pod in range(3)
    ]
    rows += [f"{1_700_000_000 + at * 60},new,main,{GIB}\n" for at in range(1380, 1440)]
    path.write_text(HEADER + "".join(rows))
    return path


def test_a_table_with_evidence_and_the_reason_where_nothing_is_advised(recommend, samples: Path) -> None:
    said = recommend("--from-csv", samples, "--min-history", "12h", "--cards", "4x80GiB")
    lines = said.stdout.splitlines()
    assert lines[0].split() == [
        "WORKLOAD",
        "CONTAINER",
        "NOW",
        "ADVISED",
        "PEAK",
        "WHEN",
        "OF",
        "SAMPLES",
        "HISTORY",
        "CONFIDENCE",
    ]
    assert lines[1].split()[:4] == ["web", "all", "3", "-"]
    assert "1h" in said.stdout
    assert "new" in said.stdout
    assert "of samples, 12h are needed: wait, or lower --min-history" in said.stdout
    assert "back-test of 'peak': 0.0 % misses" in said.stdout
    assert "GPUs: 1 of 4 hold what runs now" in said.stdout
    assert "taken for running containers of 1 of 2 workloads" in said.stderr


def test_json_has_stable_names_and_a_figure_for_every_container(recommend, samples: Path) -> None:
    document = json.loads(recommend("--from-csv", samples, "--min-history", "12h", "-o", "json").stdout)
    assert set(document) == {
        *(
            "source",
            "from",
            "to",
            "samples",
            "rejected",
            "notes",
            "strategy",
            "minHistorySeconds",
            "headroom",
        ),
        *("backtest", "advice", "containers", "saved", "cards"),
    }
    assert document["samples"] == 4380
    assert document["from"] == "2023-11-14T22:10:00Z"
    found = {(each["workload"], each["container"]): each["advised"] for each in document["containers"]}
    assert set(found) == {("web", "web-0"), ("web", "web-1"), ("web", "web-2"), ("new", "main")}
    assert found["new", "main"] is None
    assert 8 * GIB * 1.15 <= found["web", "web-1"] <= 8 * GIB * 1.4
    (new,) = [each for each in document["advice"] if each["workload"] == "new"]
    assert new["refused"] == "short-history"
    (web,) = [each for each in document["advice"] if each["workload"] == "web"]
    assert (web["container"], web["instances"]) == ("", ["web-0", "web-1", "web-2"])


def test_the_same_from_gzip_and_from_standard_input(recommend, samples: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "samples.csv.gz"
    zipped.write_bytes(gzip.compress(samples.read_bytes()))
    plain = json.loads(recommend("--from-csv", samples, "-o", "json", "--min-history", "1h").stdout)
    for document in (
        recommend("--from-csv", zipped, "-o", "json", "--min-history", "1h").stdout,
        recommend("--from-csv", "-", "-o", "json", "--min-history", "1h", input=samples.read_text()).stdout,
    ):
        read = json.loads(document)
        assert read["advice"] == plain["advice"]


def test_nothing_can_be_advised_is_an_exit_code_of_its_own(recommend, samples: Path) -> None:
    said = recommend("--from-csv", samples, "--min-history", "30d", code=3)
    assert "are needed" in said.stdout


def test_scripts_can_ask_whether_something_is_too_low(recommend, tmp_path: Path) -> None:
    path = tmp_path / "limits.csv"
    rows = "".join(
        f"{1_700_000_000 + at * 300},{name},main,{8 * GIB},{limit}\n"
        for at in range(300)
        for name, limit in (("low", "8Gi"), ("high", "40Gi"))
    )
    path.write_text("timestamp,workload,container,bytes,limit\n" + rows)
    arguments = ("--from-csv", path, "--min-history", "12h", "--headroom", "25")
    recommend(*arguments)
    said = recommend(*arguments, "--check", code=4)
    assert "40Gi  30Gi (then 10Gi)" in said.stdout
    assert "8Gi   10Gi" in said.stdout
    assert "frees 8Gi of what runs now, 28Gi when all steps are taken" in said.stdout
    recommend(*arguments, "--check", "high")
    document = json.loads(recommend(*arguments, "-o", "json", "--cards", "2x40GiB").stdout)
    assert document["cards"] == {"now": 2, "advised": 1, "withoutRoom": 0, "there": 2}
    assert (
        "1 of 2 instead of 2 hold what runs now: 1 card fewer"
        in recommend(*arguments, "--cards", "2x40GiB").stdout
    )


def test_patches_that_kubectl_takes(recommend, tmp_path: Path) -> None:
    path = tmp_path / "kinds.csv"
    rows = "".join(f"{1_700_000_000 + at * 300},team/deployment/web,server,{GIB}\n" for at in range(300))
    path.write_text(HEADER + rows)
    said = recommend(
        "--from-csv", path, "--min-history", "12h", "-o", "yaml", "--headroom", "100", "-n", "team", "web"
    )
    (document,) = yaml.safe_load_all(said.stdout)
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cotenant.dev/gpu-memory": "2Gi"}
    recommend("--from-csv", path, "-n", "other", code=2)


def test_many_cards_of_several_kinds(recommend, samples: Path) -> None:
    said = recommend(
        "--from-csv", samples, "--min-history", "12h", "--cards", "500xA100-80GB,2x16GiB", "-o", "json"
    )
    assert json.loads(said.stdout)["cards"]["there"] == 502


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"msgspec", "aiohttp", "yaml", "numpy", "grpc", "cryptography", "structlog"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from cotenant.cli.main import main
main()
"""


def test_a_workstation_needs_no_further_package(environ: dict[str, str], samples: Path) -> None:
    words = [sys.executable, "-c", BLOCKED, "recommend"]
    done = subprocess.run(
        [*words, "--from-csv", str(samples)], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [*words, "--prometheus", "http://127.0.0.1:1"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cannot be reached: Connection refused" in done.stderr
    done = subprocess.run(
        words, env={**environ, "COTENANT_SIMULATE": "1x16GiB"}, capture_output=True, text=True, check=False
    )
    assert "no command that used a GPU has ended here yet" in done.stderr
    done = subprocess.run(
        [*words, "--context", "x"], env=environ, capture_output=True, text=True, check=False
    )
    assert "cluster commands need more packages" in done.stderr


def test_pictures_are_written_by_their_ending(recommend, samples: Path, tmp_path: Path) -> None:
    for ending, begin in ((".html", b"<!doctype"), (".svg", b"<svg"), (".png", b"\x89PNG")):
        recommend("--from-csv", samples, "--min-history", "12h", "--plot", tmp_path / f"out{ending}")
        assert (tmp_path / f"out{ending}").read_bytes().startswith(begin)


def test_bad_rows_are_counted_and_named(recommend, samples: Path) -> None:
    samples.write_text(samples.read_text() + "1700000000,web,web-1,-5\nnonsense\n")
    said = recommend("--from-csv", samples, "--min-history", "12h")
    assert "left out: not 4 fields: 1 row, the first in line 4383" in said.stderr
    assert "bytes: negative" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from-csv", "/nowhere"], "--from-csv: cannot read '/nowhere': No such file or directory"),
        (
            ["--from-csv", "{samples}", "--prometheus", "http://x"],
            "--from-csv and --prometheus exclude each other",
        ),
        (
            ["--from-csv", "{samples}", "--prometheus-token-file", "token"],
            "--prometheus-token-file is Prometheus', and the source is --from-csv",
        ),
        (["--from-csv", "{samples}", "--since", "3d"], "--since is Prometheus'"),
        (["--local", "--time-unit", "ms"], "--time-unit is a file's, and the source is --local"),
        (["--from-csv", "{samples}", "--min-history", "soon"], "--min-history: 'soon' is not a duration"),
        (["--from-csv", "{samples}", "--headroom", "5"], "--headroom: 5 is not between 15 and 1000"),
        (["--from-csv", "{samples}", "--headroom", "much"], "--headroom: 'much' is not a percentage"),
        (["--from-csv", "{samples}", "--headroom", "nan"], "--headroom: nan is not between"),
        (["--from-csv", "{samples}", "--lower-by", "0"], "--lower-by: 0 is not above 0"),
        (["--from-csv", "{samples}", "--since", "1s"], "--since: 1s is not between 1h and 400d"),
        (["--from-csv", "{samples}", "--cards", "many"], "--cards: no model 'many'"),
        (
            ["--from-csv", "{samples}", "--plot", "out.pdf"],
            "--plot: 'out.pdf' does not end with .html, .svg or .png",
        ),
        (["--from-csv", "{samples}", "--plot", "/nowhere/out.svg"], "its folder does not exist"),
        (
            ["--from-csv", "{samples}", "-o", "yaml", "--min-history", "12h"],
            "--output: 'web' is not a workload that can be patched",
        ),
        (["--from-csv", "{samples}", "--strategy", "mean"], "--strategy:"),
        (["--from-csv", "{samples}", "--min-history", ""], "--min-history: "),
        (["--prometheus", "not a url"], "--prometheus: "),
        (["--prometheus", "http://host", "--prometheus-ca-file", "/nowhere"], ""),
    ],
)
def test_bad_input_names_the_option_and_the_remedy(
    environ: dict[str, str], samples: Path, arguments: list[str], said: str
) -> None:
    words = [*NAME, *(each.replace("{samples}", str(samples)) for each in arguments)]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if not said else 2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""


def test_names_of_others_do_not_reach_the_terminal_as_they_are(recommend, tmp_path: Path) -> None:
    path = tmp_path / "wicked.csv"
    path.write_text(
        HEADER + "".join(f"{at * 300},\x1b]0;owned\x07web,\x1b[31mred,{GIB}\n" for at in range(300))
    )
    said = recommend("--from-csv", path, "--min-history", "12h", "--plot", tmp_path / "out.svg")
    assert "\x1b" not in said.stdout + said.stderr
    assert "?]0;owned?web" in said.stdout
    assert "\x1b" not in (tmp_path / "out.svg").read_text()
    said = recommend("--from-csv", path, "--min-history", "12h", "-o", "json")
    assert "\x1b" not in said.stdout


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one processor reads a file alone")
def test_an_interrupt_ends_all_processes_that_read(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    row = f"1700000000,web,web-0,{GIB}\n" * 10_000
    with path.open("w") as file:
        file.write(HEADER)
        for _ in range(400):
            file.write(row)
    process = subprocess.Popen(
        [*NAME, "--from-csv", str(path)], env=environ, stderr=subprocess.PIPE, start_new_session=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + 30
    while not (found := children.read_text().split()) and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert found, "it ended before anybody could see who reads"
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    while any(Path(f"/proc/{pid}").exists() for pid in found):
        assert time.monotonic() < end + 30
        time.sleep(0.05)
    assert process.stderr is not None
    with process.stderr as said:
        assert b"Traceback" not in said.read()


def test_progress_is_shown_on_a_terminal_only(
    environ: dict[str, str], samples: Path, open_terminal: Callable[..., Terminal], recommend
) -> None:
    screen = open_terminal([*NAME, "--from-csv", str(samples), "--min-history", "12h"], environ, columns=72)
    assert screen.end() == 0
    assert b"rows of" in screen.seen
    assert "(no room for" in screen.text()
    assert all(len(line) <= 72 for line in screen.text().replace("\r", "\n").splitlines())
    assert "rows of" not in recommend("--from-csv", samples, "--min-history", "12h").stderr


def test_this_machines_history(environ: dict[str, str], recommend) -> None:
    simulated = {**environ, "COTENANT_SIMULATE": "1x16GiB"}
    program = "import ctypes; c=ctypes.CDLL('libcuda.so.1'); c.cuInit(0); d=ctypes.c_int(); c.cuDeviceGet(ctypes.byref(d),0); x=ctypes.c_void_p(); c.cuCtxCreate_v2(ctypes.byref(x),0,d); p=ctypes.c_uint64(); assert c.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1<<30))==0"
    run = [*NAME[:-1], "run", "--name", "train", "--gpu-memory", "8Gi", "--", sys.executable, "-c", program]
    empty = subprocess.run([*NAME, "--local"], env=simulated, capture_output=True, text=True, check=False)
    assert empty.returncode == 1
    assert "no command that used a GPU has ended here yet" in empty.stderr
    for _ in range(3):
        subprocess.run(run, env=simulated, check=True, capture_output=True)
    for words in (NAME, [*NAME, "--local"]):
        done = subprocess.run(
            [*words, "-o", "json"], env=simulated, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        (advice,) = json.loads(done.stdout)["advice"]
        assert advice["workload"] == "train"
        assert advice["evidence"]["coldStarts"] == 3
        assert advice["now"] == 8 * GIB
        assert GIB * 1.15 < advice["target"] < 3 * GIB


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backfilled]:
    server = Backfilled(tmp_path_factory.mktemp("prometheus"))
    server.start()
    yield server
    server.stop()


def test_prometheus_by_its_url(recommend, prometheus: Backfilled) -> None:
    said = recommend("--prometheus", prometheus.url, "--min-history", "1d", "--cards", "8x80GiB")
    assert "team/deployment/web" in said.stdout
    assert "18Gi (then " in said.stdout
    assert "1 cold starts seen, 2 are needed" in said.stdout
    assert "cards fewer" in said.stdout or "card fewer" in said.stdout
    (document,) = yaml.safe_load_all(recommend("--prometheus", prometheus.url, "-o", "yaml").stdout)
    assert document["metadata"] == {"name": "web", "namespace": "team"}


def test_before_cotenant_is_installed(recommend, prometheus: Backfilled) -> None:
    said = recommend("--prometheus", prometheus.url, "--series", "dcgm", "--cards", "8x80GiB", "-n", "team")
    assert "it shares a GPU with sliced-0, sliced-1" in said.stdout
    assert "3 pods share a GPU by time-slicing:" in said.stderr
    assert "2 pods share a GPU by time-slicing;" in said.stderr
    assert "team/statefulset/mig" in said.stdout
    web = next(line for line in said.stdout.splitlines() if line.startswith("team/deployment/web"))
    assert "then" not in web, "there is no limit yet that could be lowered in steps"
    said = recommend("--prometheus", prometheus.url, "-n", "nobody", code=1)
    assert "has no samples of namespace nobody in this time" in said.stderr
    said = recommend("--prometheus", prometheus.url, "--series", "dcgm", "-n", "nobody", code=1)
    assert "none names a pod of namespace nobody" in said.stderr
