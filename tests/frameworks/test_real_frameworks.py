"""Real frameworks read what this package sets, without a card: by their own parsers, or by the name in their library.

`python scripts/frameworks.py` installs them; without that these tests are skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pages
import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
HALF = {"ALIYUN_COM_GPU_MEM_CONTAINER": "3803", "ALIYUN_COM_GPU_MEM_DEV": "7606"}
USABLE = (3803 - 512) << 20
FOLDER = Path(os.environ.get("COTENANT_FRAMEWORKS") or Path(sys.prefix) / "frameworks")


def home(framework: str) -> Path:
    found = FOLDER / framework
    if not (found / ".complete").exists():
        pytest.skip(f"{framework} is not installed: python scripts/frameworks.py")
    return found


def run(framework: str, code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs it in the framework's environment, in a container of gpushare."""
    given = {**os.environ, **HALF, "PYTHONPATH": str(SOURCE), "TF_CPP_MIN_LOG_LEVEL": "3", **environ}
    return subprocess.run(
        [home(framework) / "bin" / "python", "-c", code],
        env=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def told(framework: str, code: str, **environ: str) -> object:
    done = run(framework, code, **environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def library(framework: str, pattern: str) -> bytes:
    (found,) = home(framework).glob(f"lib/python*/site-packages/{pattern}")
    return found.read_bytes()


JAX = """
from cotenant.frameworks import jax as ours
ours.limit()
import json, jaxlib.xla_client as client
print(json.dumps(client.generate_pjrt_gpu_plugin_options().get("memory_fraction")))
"""


@pytest.mark.parametrize("present", [{}, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}])
def test_jax_reads_the_fraction_whichever_name_was_there(present):
    assert told("jax", JAX, **present) == 0.4326


def test_jax_refuses_both_names():
    code = "import jaxlib.xla_client as client; client.generate_pjrt_gpu_plugin_options()"
    both = run("jax", code, XLA_PYTHON_CLIENT_MEM_FRACTION="0.9", XLA_CLIENT_MEM_FRACTION="0.9")
    assert "ValueError: XLA_CLIENT_MEM_FRACTION is specified together" in both.stderr


def test_cupy_reads_the_bytes():
    code = """
import json, os
from cotenant.frameworks import share
os.environ.update(share().environment("cupy"))
from cupy.cuda.memory import _parse_limit_string
print(json.dumps(_parse_limit_string()))
"""
    assert told("cupy", code) == {"size": USABLE, "fraction": None}


def test_tensorflow_takes_the_page_s_example_as_it_stands():
    section = pages.read("frameworks").split("## gpushare's guide: TensorFlow")[1]
    fraction, config = (part.split("```")[0] for part in section.split("```python\n")[1:3])
    code = f"{fraction}\n{config}\nprint(config.gpu_options.per_process_gpu_memory_fraction)"
    assert told("tensorflow", code) == 0.3


def test_tensorflow_has_the_line_and_the_variable():
    code = """
import json
from cotenant.frameworks import share, tensorflow as ours
import tensorflow as tf
ours.limit()
exec(share().settings("tensorflow").code)
device = tf.config.LogicalDeviceConfiguration(memory_limit=share().usable >> 20)
print(json.dumps([device.memory_limit, len(tf.config.list_physical_devices("GPU"))]))
"""
    assert told("tensorflow", code) == [USABLE >> 20, 0]
    assert b"TF_FORCE_GPU_ALLOW_GROWTH" in library("tensorflow", "tensorflow/libtensorflow_framework.so.2")


def test_onnxruntime_has_the_options():
    content = library("onnxruntime", "onnxruntime/capi/libonnxruntime_providers_cuda.so")
    for name in (b"gpu_mem_limit", b"arena_extend_strategy", b"kSameAsRequested"):
        assert b"\0" + name + b"\0" in content
