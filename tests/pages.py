"""The commands and manifests that pages of docs/ tell people to type, as they stand in the text."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import warm

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("kubectl", "helm", "cotenant", "podman", "docker", "pipx", "uv", "pip", "python3", "sudo")
NOT_TYPED = {"kubectl cotenant", "cotenant run", "kubectl inspect gpushare"}
"""Names of commands in a sentence, and those of others."""

HEADING = re.compile(r"^## (.*)$")
FENCE = re.compile(r"^\s*```(\w*)")
INLINE = re.compile(r"`([^`]+)`")


class Command(NamedTuple):
    page: str
    section: str
    text: str


def read(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def commands(page: str) -> list[Command]:
    """All lines of code blocks and all code in sentences that begin with a program's name, in their order."""
    return [
        Command(page, section, text)
        for section, text in _code(read(page))
        if text.split()[0] in PROGRAMS and " " in text and text not in NOT_TYPED and "..." not in text
    ]


def manifests(page: str) -> list[str]:
    """The YAML blocks of a page, in their order."""
    return re.findall(r"^```yaml\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)


def run_cotenant(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command of a page, which must be ours, in a folder with the files that it names."""
    program, *words = shlex.split(command)
    assert program == "cotenant"
    return warm.run(words, cwd=folder, env={**os.environ, "COLUMNS": "200"})


def _code(text: str) -> Iterator[tuple[str, str]]:
    section, fenced, waiting, prose = "", False, "", ""
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
            continue
        if fenced:
            continue
        if heading := HEADING.match(line):
            section = heading[1]
        if line.startswith("    "):
            waiting += line.strip()
            if waiting.endswith("\\"):
                waiting = waiting[:-1]
                continue
            yield section, waiting
            waiting = ""
            continue
        prose = f"{prose} {line}" if line.strip() and not line.startswith("|") else line
        spans = INLINE.findall(prose) if prose.count("`") % 2 == 0 else []
        if prose.count("`") % 2 == 0:
            for each in spans:
                if each.strip():
                    yield section, " ".join(each.split())
            prose = ""
