"""The image, built from the Containerfile by a real builder. It fetches packages, so it runs where it is asked for:

    COTENANT_BUILDER=podman python -m pytest tests/image      (or docker, or buildah)

A base image that is there already is taken as it is. COTENANT_BUILDER_OPTIONS are options of its `build`.
"""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILDER = shlex.split(os.environ.get("COTENANT_BUILDER", ""))
OPTIONS = shlex.split(os.environ.get("COTENANT_BUILDER_OPTIONS", ""))
BUILDAH = any(Path(word).name == "buildah" for word in BUILDER)
NEVER = "--pull-never" if BUILDAH else "--pull=false"
IMAGE = "localhost/cotenant-tested"

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not BUILDER, reason="no image is built: COTENANT_BUILDER=podman (docker, buildah) says by what"
    ),
]


def call(*words: str) -> str:
    done = subprocess.run([*BUILDER, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def image():
    call("build", NEVER, *OPTIONS, "-f", "Containerfile", "-t", IMAGE, ".")
    yield IMAGE
    call("rmi", IMAGE)


@pytest.fixture(scope="module")
def run(image):
    """Runs a command in it, as its user. podman and docker make its root read-only; buildah cannot."""
    if not BUILDAH:
        yield lambda *words: call("run", "--rm", "--read-only", "--entrypoint", words[0], image, *words[1:])
        return
    container = call("from", NEVER, image).strip()
    yield lambda *words: call("run", container, "--", *words)
    call("rm", container)


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["server", "--help"], ["agent", "--help"], ["settings"]]
)
def test_the_program_runs_in_it(run, words):
    assert "cotenant" in run("cotenant", *words).lower()


def test_nobody_runs_in_it_as_root(run):
    assert run("id", "-u").strip() == "65532"


def test_no_pip_and_no_compiler_is_left_in_it(run):
    there = "for each in pip pip3 cc gcc clang zig; do command -v $each; done; true"
    assert run("sh", "-c", there) == ""
    modules = "from importlib.util import find_spec; print([n for n in ('pip', 'ziglang', 'hatchling') if find_spec(n)])"
    assert run("python", "-c", modules).strip() == "[]"


def test_the_libraries_that_agents_give_to_containers_are_its_own(run):
    shows = (
        "from cotenant.hardware import libraries as l; print(l.shim(), l.standin_cuda(), l.standin_nvml())"
    )
    paths = run("python", "-c", shows).split()
    assert all(path.startswith("/opt/cotenant/") for path in paths)
    assert run("sh", "-c", f"od -An -tx1 -N4 {paths[0]}").split() == ["7f", "45", "4c", "46"]
