"""`cotenant simulate scaling` as it is typed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import warm

HEADER = "timestamp,service_seconds\n"


def typed(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = warm.run(["simulate", *words])
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "requests.csv"
    path.write_text(HEADER + "".join(f"{at / 2},{0.5 + at % 3}\n" for at in range(1200)))
    return str(path)


def test_one_row_shows_a_line_for_each_policy_and_a_plot(trace: str) -> None:
    said = typed("scaling", "--trace", trace).stdout
    for name in ("ours", "seed", "hpa", "keda", "knative", "oracle"):
        assert f"\n{name} " in said
    assert "requests.csv: 1200 requests in 9m59s" in said
    assert "bound 0.50 replica-hours" in said
    assert "\nbusy " in said


def test_several_rows_end_with_the_mean(trace: str) -> None:
    said = typed(
        "scaling", "--trace", trace, "--policy", "ours,hpa", "--cold-start", "10,45", "--target", "3,5"
    ).stdout
    assert said.count("1.5 s") == 4 + 1  # the rows, and the plot's heading
    assert "\nMEAN" in said


def test_json_is_the_same_twice_and_differs_by_seed(trace: str) -> None:
    words = ("scaling", "--trace", trace, "--policy", "ours", "-o", "json", "--changes")
    first = typed(*words).stdout
    assert first == typed(*words).stdout
    assert first != typed(*words, "--seed", "2").stdout
    row = json.loads(first)["rows"][0]
    assert row["coldStart"] == 45
    assert row["policies"]["ours"]["changes"][0]["reason"]


def test_a_picture_is_written(trace: str, tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    typed("scaling", "--trace", trace, "--policy", "ours,seed", "--plot", str(path))
    texts = [each.text for each in ET.parse(path).iter() if each.text and each.text.strip()]
    assert {"ours", "seed", "oracle"} <= set(texts)


def test_figures_are_shown_even_if_the_picture_cannot_be_written(trace: str, tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    path.symlink_to("/dev/full")
    done = typed("scaling", "--trace", trace, "--policy", "ours", "--plot", str(path), code=1)
    assert "\nours " in done.stdout
    assert "cannot write" in done.stderr


def test_faults_are_named_by_the_states_that_they_cause(trace: str) -> None:
    said = typed(
        "scaling", "--trace", trace, "--policy", "ours", "--fault", "stuck@5m+3m", "--changes"
    ).stdout
    assert "MetricStuck" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--trace: is missing"),
        (("--trace", "none.csv"), "--trace: cannot read none.csv: No such file"),
        (("--trace", "TRACE", "--policy", "vpa"), "--policy: 'vpa' is not known; there are ours"),
        (("--trace", "TRACE", "--policy", "ours,,hpa"), "--policy: 'ours,,hpa' has an empty part"),
        (("--trace", "TRACE", "--service", "0"), "--service: 0 is too short"),
        (("--trace", "TRACE", "--cold-start", "soon"), "--cold-start: 'soon' is not a duration"),
        (("--trace", "TRACE", "--target", "-1"), "--target: '-1' is not between"),
        (("--trace", "TRACE", "--poll", "0"), "--poll: 0 is not between 100ms and 1h"),
        (("--trace", "TRACE", "--min", "9", "--max", "8"), "--min: 9 is not between 0 and 8"),
        (("--trace", "TRACE", "--cards", "0"), "--cards: 0 is not between"),
        (("--trace", "TRACE", "--missing", "101"), "--missing: 101 is not between 0 and 100"),
        (("--trace", "TRACE", "--overlay", "x"), "--overlay: 'x' is not a whole number"),
        (
            ("--trace", "TRACE", "--service", "1,2", "--overlay", "1,2,3"),
            "--overlay: 3 numbers for 2 service times",
        ),
        (("--trace", "TRACE", "--fault", "fire@1"), "--fault: 'fire' is not known"),
        (("--trace", "TRACE", "--told-service", "0"), "--told-service: 0 is not between"),
        (("--trace", "TRACE", "--scale-down-threshold", "0"), "--scale-down-threshold: 0 is no time"),
        (("--trace", "TRACE", "--plot", "x.png"), "--plot: 'x.png' does not end with .svg"),
        (("--trace", "TRACE", "--plot", "no/x.svg"), "--plot: 'no/x.svg': its folder does not exist"),
        (("--trace", "TRACE", "--overlay", "1" * 5000), "--overlay: '1111"),
        (
            ("--trace", "TRACE", "--service", ",".join(map(str, range(1, 40)))),
            "--service: more than 32 values",
        ),
    ],
)
def test_a_bad_option_is_named_with_a_remedy(trace: str, words: tuple[str, ...], said: str) -> None:
    done = typed("scaling", *(trace if each == "TRACE" else each for each in words), code=2)
    assert done.stderr.startswith(f"cotenant: {said}")
    assert done.stderr.count("\n") == 1


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(HEADER + "1,2\n2,x\n")
    said = typed("scaling", "--trace", str(tmp_path / "bad.csv"), code=2).stderr
    assert (
        said
        == "cotenant: --trace: bad.csv line 3, field service_seconds: 'x' is not a number: correct or remove the line\n"
    )


def test_without_a_command_it_says_what_there_is() -> None:
    assert "scaling" in typed().stdout
