"""`python -m cotenant.frameworks`, as people and shells call it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
HALF = {"ALIYUN_COM_GPU_MEM_CONTAINER": "3803", "ALIYUN_COM_GPU_MEM_DEV": "7606"}


def call(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cotenant.frameworks", *words],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_people_see_the_grant_and_every_framework():
    said = call(**HALF).stdout
    assert said.startswith("grant: 3.7Gi of a card (7.4Gi)\n  from ALIYUN_COM_GPU_MEM_CONTAINER=3803 and")
    assert "one process: 3.2Gi beside its CUDA context, 0.4326 of the card" in said
    for name in ("pytorch", "tensorflow", "jax", "cupy", "onnxruntime", "vllm", "triton"):
        assert f"\n{name}:\n" in said


def test_a_shell_can_evaluate_what_is_exported():
    script = 'eval "$($0 -m cotenant.frameworks --export)" && env'
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), **HALF, "PYTORCH_ALLOC_CONF": "a:[1,'2 $(false)']"}
    done = subprocess.run(
        ["sh", "-euc", script, sys.executable], env=environ, capture_output=True, text=True, check=True
    )
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert found["XLA_CLIENT_MEM_FRACTION"] == "0.4326"
    assert found["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert found["CUPY_GPU_MEMORY_LIMIT"] == str((3803 - 512) << 20)
    assert found["PYTORCH_ALLOC_CONF"] == "a:[1,'2 $(false)'],per_process_memory_fraction:0.4326"


def test_arguments_are_words_for_a_command_line():
    assert call("--arguments", "vllm", **HALF).stdout == "--gpu-memory-utilization 0.43\n"


@pytest.mark.parametrize("option", ["--export", "--arguments"])
def test_where_nothing_is_needed_a_shell_gets_nothing(option):
    done = call(option, VOLCANO_GPU_ALLOCATED="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_json_has_all_of_it():
    told = json.loads(call("-o", "json", "--processes", "2", "--factor", "0.9", "jax", **HALF).stdout)
    assert told["grant"]["mode"] is None
    assert told["grant"]["cards"] == [
        {"uuid": None, "limit": 3803 << 20, "size": 7607 << 20, "context": 512 << 20, "whole": False}
    ]
    assert (told["processes"], told["factor"], told["needed"]) == (2, 0.9, True)
    assert told["frameworks"] == {
        "jax": {
            "environment": {"XLA_CLIENT_MEM_FRACTION": str(told["fraction"])},
            "arguments": [],
            "code": "",
            "notes": [],
        }
    }


def test_json_of_a_card_whose_size_is_not_known():
    told = json.loads(call("-o", "json", VOLCANO_GPU_ALLOCATED="1").stdout)
    assert (told["usable"], told["fraction"], told["needed"]) == (None, 1.0, False)


@pytest.mark.parametrize("words", [(), ("--export",), ("--arguments",), ("-o", "json")])
def test_without_a_grant_one_line_says_so(words):
    done = call(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cotenant: this process has no grant: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("caffe",), 2, "cotenant: framework: 'caffe' is not one of pytorch, "),
        (("-o", "json", "caffe"), 2, "cotenant: framework: 'caffe' is not one of pytorch, "),
        (("--processes", "0"), 2, "cotenant: processes: 0 is not a number from 1 to 1024"),
        (("--processes", "64"), 1, "each of 64 processes"),
        (("--factor", "nan"), 2, "cotenant: factor: nan is not above 0"),
        (("--processes", "two"), 2, "invalid int value"),
        (("--export", "-o", "json"), 2, "not allowed with"),
    ],
)
def test_bad_input_is_named(words, code, said):
    done = call(*words, **HALF)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_ended_is_no_traceback():
    done = subprocess.run(
        ["bash", "-c", '$0 -m cotenant.frameworks | true; exit "${PIPESTATUS[0]}"', sys.executable],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **HALF},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (141, "")
