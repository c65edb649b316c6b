"""bench.drivers finds what the shim changes, and only that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.drivers.comparing import Run, differences, lookup_differences

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER = {"cuMemAlloc": 0x100, "cuMemAlloc_v2": 0x200, "cuMemAlloc_v3": 0x300, "cuMemFree": 0x400}
SHIM = {"cuMemAlloc": 0x10, "cuMemAlloc_v2": 0x20}


def asked(place: str, code: str = "0 0") -> Run:
    return Run("ended", "1", {"cuGetProcAddress_v2 cuMemAlloc 13000 0": f"{code} {place}"})


@pytest.mark.parametrize(
    ("plain", "shimmed"),
    [("driver+0x200", "shim+0x20"), ("driver+0x300", "driver+0x300"), ("nothing", "nothing")],
)
def test_a_lookup_that_leads_to_the_same_function_is_no_difference(plain: str, shimmed: str):
    assert lookup_differences(asked(plain), asked(shimmed), DRIVER, SHIM) == []


@pytest.mark.parametrize(
    ("plain", "shimmed", "said"),
    [
        ("driver+0x300", "shim+0x20", "cuMemAlloc_v3 without, the shim's cuMemAlloc_v2 with"),
        ("driver+0x200", "driver+0x200", "cuMemAlloc_v2 passes the shim"),
        ("driver+0x300", "driver+0x400", "cuMemAlloc_v3 without, cuMemFree with"),
        ("driver+0x300", "nothing", "cuMemAlloc_v3 without, nothing with"),
    ],
)
def test_a_lookup_that_leads_elsewhere_is_named(plain: str, shimmed: str, said: str):
    (found,) = lookup_differences(asked(plain), asked(shimmed), DRIVER, SHIM)
    assert found.endswith(said)


def test_a_lookup_with_another_result_code_is_a_difference():
    assert lookup_differences(asked("nothing"), asked("nothing", "500 1"), DRIVER, SHIM)


@pytest.mark.parametrize(
    ("plain", "shimmed", "count"),
    [
        (Run("ended", "", {"cuInit": "100"}), Run("ended", "", {"cuInit": "302"}), 1),
        (Run("ended", "", {"cuInit": "100"}), Run("ended", "", {"cuInit": "hang"}), 1),
        (Run("ended", "", {"cuInit": "100"}), Run("ended", "", {"cuInit": "signal 11"}), 1),
        (Run("ended", "", {"cuInit": "signal 11"}), Run("ended", "", {"cuInit": "1"}), 0),
        (Run("ended"), Run("hang"), 1),
        (Run("ended", "", {}, {"HOME": "/"}), Run("ended", "", {}, {"HOME": "/", "LD_PRELOAD": "shim"}), 0),
        (Run("ended", "", {}, {"HOME": "/"}), Run("ended", "", {}, {}), 1),
    ],
)
def test_codes_outcomes_and_environments_are_compared(plain: Run, shimmed: Run, count: int):
    assert len(differences(plain, shimmed)) == count


def run(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.drivers", *words],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_on_the_stand_in_every_name_leads_to_the_same_function_with_the_shim(tmp_path: Path):
    done = run("--only", "stand-in", "--only", "lookups", "-o", "json", cache=tmp_path)
    assert done.returncode == 0, done.stdout[:4000]
    (pair,) = json.loads(done.stdout)["pairs"]
    assert pair["answers"] > 10_000


def test_on_the_stand_in_every_call_answers_the_same_with_the_shim_whatever_it_is_given(tmp_path: Path):
    done = run("--only", "stand-in", "--only", "calls", "-o", "json", cache=tmp_path)
    assert done.returncode == 0, done.stdout[:4000]
    (pair,) = json.loads(done.stdout)["pairs"]
    assert pair["answers"] > 500


def test_a_word_that_fits_nothing_is_refused_with_what_there_is(tmp_path: Path):
    done = run("--only", "stand-in", "--only", "lookup-s", cache=tmp_path)
    assert done.returncode != 0
    assert "lookup-s" in done.stderr
