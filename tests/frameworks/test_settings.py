"""What each framework is told for 4Gi of a card of 16Gi, with a context of 512Mi."""

import importlib.metadata

import pytest

from cotenant.frameworks import (
    Card,
    Grant,
    Settings,
    Share,
    cupy,
    jax,
    onnxruntime,
    pytorch,
    tensorflow,
    triton,
    vllm,
)
from cotenant.frameworks.registry import FRAMEWORKS
from cotenant.frameworks.versions import installed, parse

GIB, MIB = 1 << 30, 1 << 20
CONTEXT = 512 * MIB
USABLE = 4 * GIB - CONTEXT


def shared(limit=4 * GIB, size=16 * GIB, processes=1, *, mode="observe") -> Share:
    return Share(Grant("slot", (Card(limit, size, CONTEXT, "GPU-0"),), mode, shim=True), processes)


def enforced(limit, processes=1) -> Share:
    return shared(limit, None, processes, mode="enforce")


def test_pytorch_has_a_variable_since_2_10():
    told = pytorch.settings(shared(), {}, (2, 10, 0))
    assert told.environment == {"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.2187"}
    assert told.notes == ()


@pytest.mark.parametrize("version", [(2, 9, 1), (1, 13), (2, 8)])
def test_pytorch_before_needs_a_line_of_code(version):
    """2.9 stops at the name of the option, or ignores it."""
    told = pytorch.settings(shared(), {}, version)
    assert told.environment == {}
    assert told.code == "torch.cuda.set_per_process_memory_fraction(0.2187)"
    compile(told.code, "line", "exec")


def test_where_pytorch_is_not_installed_both_are_told():
    told = pytorch.settings(shared(), {})
    assert told.environment
    assert "2.10" in told.notes[0]


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (
            {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
            {"PYTORCH_ALLOC_CONF": "expandable_segments:True,per_process_memory_fraction:0.2187"},
        ),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "backend:native", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
            {"PYTORCH_CUDA_ALLOC_CONF": "backend:native,per_process_memory_fraction:0.2187"},
        ),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": ""},
            {"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.2187"},
        ),
        (
            {"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.9,roundup_power2_divisions:[256:1,512:2]"},
            {
                "PYTORCH_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2],per_process_memory_fraction:0.2187"
            },
        ),
        (
            {"PYTORCH_ALLOC_CONF": "a:1, per_process_memory_fraction : 0.9 ,b:2,"},
            {"PYTORCH_ALLOC_CONF": "a:1,b:2,per_process_memory_fraction:0.2187"},
        ),
    ],
)
def test_pytorch_s_other_options_are_kept_in_the_variable_that_it_reads(present, expected):
    told = pytorch.settings(shared(), present, (2, 15))
    assert told.environment == expected
    again = pytorch.settings(shared(), {**present, **told.environment}, (2, 15))
    assert again.environment == expected


@pytest.mark.parametrize(
    ("environ", "version", "name"),
    [
        ({}, (0, 10, 2), "XLA_CLIENT_MEM_FRACTION"),
        ({}, (0, 4, 33), "XLA_CLIENT_MEM_FRACTION"),
        ({}, (0, 4, 31), "XLA_PYTHON_CLIENT_MEM_FRACTION"),
        ({}, None, "XLA_CLIENT_MEM_FRACTION"),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".9"}, (0, 10, 2), "XLA_PYTHON_CLIENT_MEM_FRACTION"),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ""}, (0, 10, 2), "XLA_CLIENT_MEM_FRACTION"),
    ],
)
def test_jax_is_told_by_one_name_since_it_refuses_two(environ, version, name):
    assert jax.settings(shared(), environ, version).environment == {name: "0.2187"}


def test_tensorflow_is_told_an_amount_by_a_line_of_code():
    told = tensorflow.settings(shared(), {})
    assert told.environment == {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert f"LogicalDeviceConfiguration(memory_limit={USABLE // MIB})" in told.code
    compile(told.code, "line", "exec")


def test_cupy_and_onnxruntime_are_told_bytes():
    assert cupy.settings(shared(), {}).environment == {"CUPY_GPU_MEMORY_LIMIT": str(USABLE)}
    told = onnxruntime.settings(shared(), {})
    assert f"'gpu_mem_limit': {USABLE}" in told.code
    compile(told.code, "line", "exec")


def test_triton_s_backends_are_told_each_by_its_option():
    told = triton.settings(shared(), {})
    assert told.arguments == ("--backend-config=tensorflow,gpu-memory-fraction=0.2187",)
    assert told.code == f'parameters {{ key: "gpu_mem_limit" value: {{ string_value: "{USABLE}" }} }}'


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (shared(), ("--gpu-memory-utilization", "0.21")),
        (shared(GIB, 80 * GIB), ("--gpu-memory-utilization", "0.0062")),
        (enforced(22 * GIB), ()),
        (enforced(25 * GIB // 4), ()),
        (enforced(6 * GIB), ("--gpu-memory-utilization", "0.91")),
        (enforced(4 * GIB), ("--gpu-memory-utilization", "0.87")),
        (enforced(44 * GIB, 2), ("--gpu-memory-utilization", "0.48")),
        (enforced(CONTEXT), ()),
    ],
)
def test_vllm_is_told_what_leaves_room_for_its_context(share, told):
    assert vllm.settings(share, {}).arguments == told


@pytest.mark.parametrize("gib", [1, 2, 4, 6, 6.25, 7, 8, 22, 80])
def test_vllm_s_check_of_free_memory_passes_in_every_grant(gib):
    """It needs `utilization` of the card to be free when a context is there already (its v1/worker/utils.py)."""
    share = enforced(int(gib * GIB))
    told = vllm.settings(share, {}).arguments
    utilization = float(told[1]) if told else vllm.DEFAULT
    assert share.limit * utilization <= share.limit - CONTEXT
    assert utilization >= 0.9 * (1 - CONTEXT / share.limit), "and it leaves little unused"


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "vllm"])
def test_nothing_is_told_where_the_shim_enforces(framework):
    for limit in (CONTEXT, GIB, 40 * GIB):
        assert enforced(limit).settings(framework, {}) == Settings()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_is_told_something_where_nothing_holds_it(framework):
    told = shared().settings(framework, {})
    assert told.environment or told.arguments or told.code


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.10.0a0+git1", (2, 10, 0)),
        ("0.4.33.dev2024", (0, 4, 33)),
        ("2", (2,)),
        ("nightly", None),
        ("", None),
    ],
)
def test_versions_are_compared_by_their_numbers(text, numbers):
    assert parse(text) == numbers


def test_the_installed_version_is_found():
    assert installed("pytest") == parse(importlib.metadata.version("pytest"))
    assert installed("no-such-package-anywhere") is None
