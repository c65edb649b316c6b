"""docs/monitor-first.md explains the steps of docs/monitor-first.sh; tests/cluster/test_monitor_first.py takes them."""

import re
import subprocess

import pages
import pytest

SCRIPT = pages.ROOT / "docs" / "monitor-first.sh"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(SCRIPT), *words], capture_output=True, text=True, check=False, env={})


def test_the_page_shows_every_step_and_no_other():
    offered = re.findall(r"^  ([a-z]+) ", run().stderr, re.MULTILINE)
    shown = re.findall(r"^    sh docs/monitor-first\.sh ([a-z]+)", pages.read("monitor-first"), re.MULTILINE)
    assert len(offered) > 5
    assert set(shown) == set(offered)


@pytest.mark.parametrize(
    "words", [(), ("see",), ("enforce", "team", "too"), ("advise",), ("settled", "team"), ("set_mode", "a")]
)
def test_what_is_no_step_changes_nothing_and_says_what_is_one(words: tuple[str, ...]):
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
