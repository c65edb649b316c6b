"""The Containerfile against the tree: what it copies is there, and what the package is built of is copied."""

import fnmatch
import json
import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def instructions() -> list[tuple[str, str]]:
    """Its instructions, in order, each in one line."""
    text = re.sub(r"(?m)^\s*#.*\n", "", (ROOT / "Containerfile").read_text())
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines) if word]


def copied() -> list[str]:
    """What comes from the tree."""
    words = [rest.split() for word, rest in instructions() if word in {"COPY", "ADD"}]
    return [source for each in words if not each[0].startswith("--from") for source in each[:-1]]


def is_ignored(path: str) -> bool:
    """As podman and docker read .dockerignore: the last line that matches a path or a folder of it counts."""
    parts = path.split("/")
    above = ["/".join(parts[: at + 1]) for at in range(len(parts))]
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern, kept = line.strip().removeprefix("!"), line.startswith("!")
        if not pattern or pattern.startswith("#"):
            continue
        ways = {pattern, pattern.removeprefix("**/")}
        if any(fnmatch.fnmatch(each, way) for each in above for way in ways):
            ignored = not kept
    return ignored


def last_stage() -> dict[str, str]:
    return dict(instructions()[max(at for at, each in enumerate(instructions()) if each[0] == "FROM") :])


@pytest.mark.parametrize("source", copied())
def test_what_is_copied_is_in_the_tree_and_is_not_ignored(source: str):
    assert (ROOT / source).exists()
    assert not is_ignored(source)


@pytest.mark.parametrize(
    "needed",
    [
        "pyproject.toml",
        PROJECT["project"]["readme"],
        *PROJECT["project"]["license-files"],
        PROJECT["tool"]["hatch"]["build"]["hooks"]["custom"]["path"],
        *PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
        "csrc/build.py",
        "csrc/include/cotenant_slot.h",
    ],
)
def test_what_the_package_is_built_of_is_copied(needed: str):
    assert any(Path(needed).is_relative_to(each) for each in copied())
    assert not is_ignored(needed)


@pytest.mark.parametrize(
    "kept_out", [".git", ".venv", "tests", "docs", "scripts/pycuda.py", "src/cotenant/kube/__pycache__"]
)
def test_what_it_does_not_need_is_not_sent_to_the_builder(kept_out: str):
    assert is_ignored(kept_out)


def test_libraries_that_this_machine_compiled_stay_out():
    """They are newer than their sources, so an image for another kind of machine would be built with them."""
    assert is_ignored("src/cotenant/native/libcotenant.so")
    assert is_ignored("src/cotenant/native/standin/libcuda.so.1")


def test_it_starts_the_program_as_somebody_without_rights():
    (command,) = json.loads(last_stage()["ENTRYPOINT"])
    assert command in PROJECT["project"]["scripts"]
    assert entry_points(group="console_scripts", name=command)
    assert last_stage()["USER"] == "65532:65532", "as the chart's pods say"


def test_every_stage_has_the_same_base_and_it_can_be_another():
    bases = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert set(bases) == {"${PYTHON}"}
    assert instructions()[0] == ("ARG", "PYTHON=python:3.13-slim")


def test_packages_of_others_are_installed_before_our_sources_are_copied():
    steps = [f"{word} {rest}" for word, rest in instructions()]
    (packages,) = [
        at for at, step in enumerate(steps) if "extras.py cluster" in step and step.startswith("RUN")
    ]
    sources = steps.index("COPY src src")
    assert packages < sources
