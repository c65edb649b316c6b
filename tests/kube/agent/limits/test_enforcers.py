"""The enforcers of a node, and which of them its settings and its driver lead to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.core.errors import BadInput
from cotenant.kube.agent.cards.driver import NodeCards, cards_of
from cotenant.kube.agent.limits.enforcers import NodeEnforcers
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.settings import Settings
from cotenant.settings.loading import read_settings


@pytest.fixture
def node(tmp_path: Path) -> Iterator[object]:
    opened = []

    def make(simulate: str, enforcer: str) -> NodeEnforcers:
        settings = AgentSettings(slots=str(tmp_path), simulate=simulate, enforcer=enforcer)  # type: ignore[arg-type]
        cards: NodeCards = cards_of(settings)

        def nvml():
            opened.append(cards.nvml())
            return opened[-1]

        return NodeEnforcers(settings, replace(cards, nvml=nvml))

    yield make
    for each in opened:
        each.close()


@pytest.mark.parametrize(
    ("simulate", "wanted", "first", "chosen"),
    [
        ("1xT4@615.20", "auto", "shim", "driver"),
        ("1xT4", "auto", "shim", "shim"),
        ("1xT4@615.20", "shim", "shim", "shim"),
        ("1xT4@615.20", "watch", "watch", "watch"),
        ("1xT4@615.20", "none", "none", "none"),
        ("1xT4@615.20", "driver", "driver", "driver"),
    ],
)
def test_what_is_chosen(node, simulate: str, wanted: str, first: str, chosen: str):
    made = node(simulate, wanted)
    assert made.first().name == first
    choice = made.choose()
    assert (choice.enforcer.name, choice.problem) == (chosen, None)


def test_before_and_after_the_choice_containers_mount_the_same(node, tmp_path: Path):
    """The kubelet keeps what it was told when the container was created."""
    made = node("1xT4@615.20", "auto")
    assert made.first().container_attachment(tmp_path / "slot") == made.driver.container_attachment(
        tmp_path / "slot"
    )


def test_what_was_passed_over_and_what_cannot_be_used_is_said(node):
    assert "they came with r615" in node("1xT4", "auto").choose().passed_over["driver"]


def test_one_that_is_set_and_not_there_is_a_problem(node):
    problem = node("1xT4", "driver").choose().problem
    assert problem is not None
    assert problem.startswith("driver is asked for and cannot be used: the driver (580.95.05) has no limits")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"agent": {"enforcer": "kernel"}}, r"agent.enforcer: .*auto"),
        ({"agent": {"watch_grace": "-1s"}}, "agent.watch_grace"),
        ({"limits": {"evict_over_limit": "yes"}}, r"limits.evict_over_limit: .*dry-run"),
        ({"limits": {"evict_after": "soon"}}, "limits.evict_after"),
        (
            {"agent": {"simulate": "1xT4@new"}},
            "agent.simulate: simulated GPUs: 'new' in '1xT4@new' is not the version",
        ),
    ],
)
def test_settings_that_are_wrong_are_named(text: dict[str, dict[str, str]], said: str):
    with pytest.raises(BadInput, match=said):
        read_settings(Settings, text, {})
