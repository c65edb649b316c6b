"""Defines what `explain` says: one sentence, one next step, and the facts behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.observe.view import View


@dataclass(frozen=True)
class Explanation:
    target: str
    """`pod team/train`, `deployment team/web`."""
    state: str
    """Stable, for scripts: `running`, `starting`, `waiting`, `refused`, `ended`, `not-gpu` ..."""
    reason: str
    """Stable, for scripts: `no-room`, `too-big`, `held`, `quota` ...; empty where all is well."""
    sentence: str
    step: str = ""
    """What to do next; empty if there is nothing to be done."""
    sections: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Headings and lines under them."""
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "state": self.state,
            "reason": self.reason,
            "sentence": self.sentence,
            "next": self.step,
            **self.data,
        }

    def lines(self) -> list[str]:
        told = [f"{self.target}: {self.state}", f"    {self.sentence}"]
        if self.step:
            told.append(f"    next: {self.step}")
        for heading, lines in self.sections:
            if lines:
                told += ["", f"  {heading}", *(f"    {line}" for line in lines)]
        return told


def line_json(view: View) -> list[dict[str, Any]]:
    """Writes the line as brief explanations, without next steps."""
    return [
        Explanation(
            f"pod {each}",
            "waiting",
            each.code,
            each.reason,
            data={"place": each.place, "line": view.length, "waited": round(each.waited_seconds)},
        ).to_json()
        for each in view.line
    ]
