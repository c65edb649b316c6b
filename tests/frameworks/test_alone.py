"""The folder works by itself: no Cotenant, nothing but the standard library, under any name."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "src" / "cotenant" / "frameworks"
FILES = sorted(FOLDER.glob("*.py"))
HALF = {"ALIYUN_COM_GPU_MEM_CONTAINER": "3803", "ALIYUN_COM_GPU_MEM_DEV": "7606"}

CODE = """
import json, sys
sys.path.append(sys.argv[1])
from gpu_share import Share, share
from gpu_share.registry import FRAMEWORKS
from gpu_share import cupy, jax, onnxruntime, pytorch, tensorflow, triton, vllm
told = {name: share().environment(name) for name in FRAMEWORKS}
foreign = sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"gpu_share", "__main__"})
print(json.dumps({"told": told, "foreign": foreign, "path": sys.path[-1]}))
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(FOLDER, tmp_path / "gpu_share", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_an_isolated_interpreter_needs_only_the_folder(copied: Path):
    """-I -S: no site-packages, no PYTHONPATH, not even the current folder."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CODE, copied],
        env=HALF,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["foreign"] == []
    assert told["told"]["jax"] == {"XLA_CLIENT_MEM_FRACTION": "0.4326"}
    assert told["told"]["cupy"] == {"CUPY_GPU_MEMORY_LIMIT": str((3803 - 512) << 20)}


def test_the_copy_can_be_called(copied: Path):
    done = subprocess.run(
        [sys.executable, "-S", "-m", "gpu_share", "--export", "jax"],
        cwd=copied,
        env=HALF,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("export XLA_CLIENT_MEM_FRACTION=0.4326\n", "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_syntax_is_that_of_python_3_9(file: Path):
    """Images bring older Pythons than Cotenant needs. Annotations are not evaluated."""
    tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert [name.name for node in futures for name in node.names] == ["annotations"]
    keywords = {word.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords}
    assert not keywords & {"slots", "kw_only", "strict"}, "of later versions"
