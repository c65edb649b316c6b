"""How packages reach an environment: by uv with what is set for pip, and by pip where uv cannot."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/install.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("install_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: object())
    return module


def answered(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, codes: Sequence[int]
) -> list[Sequence[str]]:
    """Has installers exit so, in turn; returns the list that gets their commands."""
    called, left = list[Sequence[str]](), list(codes)

    def run(command: Sequence[str], _: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        called.append(command)
        return subprocess.CompletedProcess(command, left.pop(0), "", "")

    monkeypatch.setattr(script, "_run", run)
    return called


def test_uv_installs(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    called = answered(script, monkeypatch, [0])
    assert script.install(["click>=8"], "/other/python").returncode == 0
    (uv,) = called
    assert uv[1:4] == ["-m", "uv", "pip"]
    assert uv[-3:] == ["--python", "/other/python", "click>=8"]


@pytest.mark.parametrize("code", [0, 1])
def test_what_uv_cannot_do_is_pips_to_answer(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    called = answered(script, monkeypatch, [2, code])
    assert script.install(["click>=8"]).returncode == code
    assert called[1][1:3] == ["-m", "pip"]
    assert called[1][-2:] == ["install", "click>=8"]


def test_an_index_and_folders_that_are_set_for_pip_are_uvs_too(script: ModuleType) -> None:
    configured = """global.index-url='https://packages.example/simple'
:env:.find-links='/one /two'
global.extra-index-url='\\nhttps://a.example\\nhttps://b.example'
:env:.default-timeout='180'
"""
    assert script.for_uv(configured, {}) == {
        "UV_DEFAULT_INDEX": "https://packages.example/simple",
        "UV_FIND_LINKS": "/one,/two",
        "UV_INDEX": "https://a.example https://b.example",
    }


def test_what_is_set_for_uv_stays(script: ModuleType) -> None:
    assert script.for_uv("global.cert='/a.pem'", {"SSL_CERT_FILE": "/b.pem"}) == {}
