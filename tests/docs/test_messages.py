"""The messages that docs/troubleshooting.md quotes are those that the program prints."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
OF_OTHERS = ("(kube-scheduler)", "(kubelet)", "(kubectl)")
"""Rows that quote kube-scheduler, the kubelet or kubectl."""


@functools.cache
def printed() -> str:
    """Every string of the program, one a line; what is filled in is cut out."""
    strings: list[str] = []
    for path in (ROOT / "src" / "cotenant").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
        strings += [" ".join(value.split()) for value in constants if isinstance(value, str)]
    for path in (ROOT / "csrc" / "shim").glob("*.c"):
        joined = re.sub(r'"\s*"', "", path.read_text(encoding="utf-8"))
        strings += [re.sub(r"%\w+", "\n", text) for text in re.findall(r'"([^"\n]*)"', joined)]
    return "\n".join(strings)


def quoted() -> list[str]:
    """The code in the first column of tables, where it has the length of a message."""
    rows = [row for row in PAGE.read_text(encoding="utf-8").splitlines() if row.startswith("| ")]
    first = [row.split(" | ")[0] for row in rows if not any(each in row for each in OF_OTHERS)]
    return [code for cell in first for code in re.findall(r"`([^`]+)`", cell) if "…" in code or " " in code]


def found(piece: str, strings: str) -> bool:
    """In one string of the program, or in two that it puts together."""
    cuts = [each.start() for each in re.finditer(" ", piece)]
    halves = [(piece[:cut].strip(" ,:;"), piece[cut:].strip()) for cut in cuts]
    return piece in strings or any(
        min(len(one), len(other)) > 5 and one in strings and other in strings for one, other in halves
    )


MESSAGES = [each for each in quoted() if not each.startswith(("cotenant ps", "explain"))]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_in_the_program(message: str):
    strings = printed()
    pieces = [piece.strip(" .,:;()%") for piece in message.split("…")]
    assert [piece for piece in pieces if len(piece) > 3 and not found(piece, strings)] == []


def test_there_are_messages():
    assert len(MESSAGES) > 20
