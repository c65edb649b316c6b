"""The one line in a program: what it calls. Frameworks are played by modules that note it; their own reading of
what is set is in test_real_frameworks.py.
"""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from cotenant.frameworks import NoGrant, ShareError, cupy, jax, onnxruntime, pytorch, tensorflow, triton, vllm

GIB, MIB = 1 << 30, 1 << 20
USABLE = 3803 * MIB - 512 * MIB


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a card, as in gpushare's guide."""
    monkeypatch.setenv("ALIYUN_COM_GPU_MEM_CONTAINER", "3803")
    monkeypatch.setenv("ALIYUN_COM_GPU_MEM_DEV", "7606")


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to be set, so no framework may be imported for it."""
    monkeypatch.setenv("VOLCANO_GPU_ALLOCATED", "1")
    for name in ("torch", "tensorflow", "jax", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)


def played(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: object) -> None:
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize(("size", "fraction"), [(7600 * MIB, USABLE / (7600 * MIB)), (2 * GIB, 1.0)])
def test_pytorch_is_limited_on_the_current_card_alone_by_its_own_size(monkeypatch, size, fraction):
    """On another card it would create a context."""
    calls = []
    cuda = SimpleNamespace(
        current_device=lambda: 1,
        get_device_properties=lambda device: SimpleNamespace(total_memory=size if device == 1 else 0),
        set_per_process_memory_fraction=lambda fraction, device: calls.append((fraction, device)),
    )
    played(monkeypatch, "torch", cuda=cuda)
    found = pytorch.limit()
    assert calls == [(fraction, 1)]
    assert found.usable == USABLE


@pytest.mark.usefixtures("half")
def test_tensorflow_gets_a_logical_device_of_that_size_on_each(monkeypatch):
    calls = []
    config = SimpleNamespace(
        LogicalDeviceConfiguration=lambda memory_limit: memory_limit,
        list_physical_devices=lambda kind: ["a", "b"] if kind == "GPU" else [],
        set_logical_device_configuration=lambda gpu, devices: calls.append((gpu, devices)),
    )
    played(monkeypatch, "tensorflow", config=config)
    tensorflow.limit(factor=0.7)
    assert calls == [("a", [int(USABLE * 0.7) // MIB]), ("b", [int(USABLE * 0.7) // MIB])]


@pytest.mark.usefixtures("half")
def test_jax_is_told_by_its_variable_before_it_is_imported(monkeypatch):
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "to be restored")
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert jax.limit().fraction == 0.4326
    assert os.environ["XLA_CLIENT_MEM_FRACTION"] == "0.4326"
    played(monkeypatch, "jax")
    with pytest.raises(ShareError, match="JAX is imported already"):
        jax.limit()


@pytest.mark.usefixtures("half")
def test_cupy_s_pool_is_limited_on_the_current_card(monkeypatch):
    calls = []
    pool = SimpleNamespace(set_limit=lambda size: calls.append(size))
    played(monkeypatch, "cupy", get_default_memory_pool=lambda: pool)
    cupy.limit()
    assert calls == [USABLE]


@pytest.mark.usefixtures("half")
def test_onnxruntime_s_sessions_divide_it():
    name, options = onnxruntime.provider(sessions=2)
    assert name == "CUDAExecutionProvider"
    assert options == {"gpu_mem_limit": USABLE // 2, "arena_extend_strategy": "kSameAsRequested"}
    with pytest.raises(ShareError, match="sessions: 0 is not a number from 1 to 1024"):
        onnxruntime.provider(sessions=0)


@pytest.mark.usefixtures("half")
def test_servers_get_arguments():
    assert vllm.arguments() == ("--gpu-memory-utilization", "0.43")
    assert triton.arguments(2) == ("--backend-config=tensorflow,gpu-memory-fraction=0.1826",)


@pytest.mark.usefixtures("whole")
def test_where_nothing_is_needed_nothing_is_imported_or_set():
    before = dict(os.environ)
    for each in (pytorch, tensorflow, jax, cupy):
        assert not each.limit().needed
    assert onnxruntime.provider() == ("CUDAExecutionProvider", {})
    assert (vllm.arguments(), triton.arguments()) == ((), ())
    assert dict(os.environ) == before


@pytest.mark.parametrize("each", [pytorch, tensorflow, jax, cupy])
def test_without_a_grant_a_program_is_told_so(each):
    with pytest.raises(NoGrant):
        each.limit()
