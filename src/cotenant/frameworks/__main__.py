"""Prints the grant of this process and what frameworks are to be told: `python -m cotenant.frameworks`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict

from . import share
from .amounts import show
from .errors import BadValue, ShareError
from .registry import FRAMEWORKS, settings_of
from .settings import Settings
from .sharing import Share

_EPILOG = """\
python -m cotenant.frameworks                              the grant, and settings of all frameworks
settings=$(python -m cotenant.frameworks --export jax) && eval "$settings" && exec python train.py
vllm serve MODEL $(python -m cotenant.frameworks --arguments vllm)

Where the shim enforces the grant, --export and --arguments print nothing: the program sees a card as large as
its grant. Exit codes: 1 no grant, or a setting cannot be computed; 2 bad input.
"""
_READER_GONE = 141
"""As a shell reports a command that SIGPIPE has ended."""


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    names = options.frameworks or list(FRAMEWORKS)
    try:
        found = share(options.processes, factor=options.factor)
        if options.export or options.arguments:
            lines = _for_shell(found, names, export=options.export)
        elif options.output == "json":
            lines = [json.dumps(_as_json(found, names), indent=2)]
        else:
            lines = _for_people(found, names)
    except ShareError as error:
        print(f"cotenant: {error}", file=sys.stderr)
        return 2 if isinstance(error, BadValue) else 1
    try:
        print("\n".join(lines), end="\n" if lines else "", flush=True)
    except BrokenPipeError:  # a reader that has ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _READER_GONE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}",
        description="Print the grant of this process and the settings of frameworks that follow from it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "frameworks", nargs="*", metavar="FRAMEWORK", help=f"any of {', '.join(FRAMEWORKS)}; all unless given"
    )
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="equal processes that share the grant on a card"
    )
    parser.add_argument(
        "--factor", type=float, default=1.0, metavar="F", help="use only this part of it, such as 0.9"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--export", action="store_true", help="print variables as lines for a shell")
    only.add_argument("--arguments", action="store_true", help="print arguments for a server's command line")
    only.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser


def _for_shell(found: Share, names: Sequence[str], *, export: bool) -> list[str]:
    every = [settings_of(name, found, os.environ) for name in names]
    if export:
        pairs = [pair for each in every for pair in each.environment.items()]
        return [f"export {name}={shlex.quote(value)}" for name, value in pairs]
    words = [word for each in every for word in each.arguments]
    return [" ".join(map(shlex.quote, words))] if words else []


def _as_json(found: Share, names: Sequence[str]) -> dict[str, object]:
    grant = found.grant
    return {
        "grant": {
            "source": grant.source,
            "mode": grant.mode or None,
            "shim": grant.shim,
            "enforced": grant.enforced,
            "cards": [
                {
                    "uuid": card.uuid or None,
                    "limit": card.limit or None,
                    "size": card.size,
                    "context": card.context,
                    "whole": card.whole,
                }
                for card in grant.cards
            ],
        },
        "processes": found.processes,
        "factor": found.factor,
        "needed": found.needed,
        "reason": found.reason,
        "usable": _or_none(found, "usable"),
        "fraction": _or_none(found, "fraction"),
        "frameworks": {name: asdict(_or_problem(found, name)) for name in names},
    }


def _for_people(found: Share, names: Sequence[str]) -> list[str]:
    grant = found.grant
    cards = ", ".join(
        f"{show(card.limit) if card.limit else 'all'} of {card.uuid or 'a card'}"
        + (f" ({show(card.size)})" if card.size else "")
        for card in grant.cards
    )
    lines = [f"grant: {cards}", f"  from {grant.source}" + (f", mode {grant.mode}" if grant.mode else "")]
    if not found.needed:
        lines.append(f"  nothing to set: {found.reason}")
    else:
        each = f"one of {found.processes} processes" if found.processes > 1 else "one process"
        part = _or_none(found, "fraction")
        usable = _or_none(found, "usable")
        lines.append(f"  {found.reason}")
        lines.append(
            f"  {each}: {'?' if usable is None else show(int(usable))} beside its CUDA context"
            + ("" if part is None else f", {part} of the card")
        )
    for name in names:
        lines += _framework_lines(name, _or_problem(found, name))
    return lines


def _framework_lines(name: str, settings: Settings) -> list[str]:
    if settings == Settings():
        return []
    lines = [f"{name}:"]
    lines += [f"  {key}={shlex.quote(value)}" for key, value in settings.environment.items()]
    if settings.arguments:
        lines.append(f"  {' '.join(map(shlex.quote, settings.arguments))}")
    if settings.code:
        lines.append(f"  {settings.code}")
    return lines + [f"  # {note}" for note in settings.notes]


def _or_problem(found: Share, name: str) -> Settings:
    """Returns the settings, or as their only note why they cannot be computed."""
    try:
        return settings_of(name, found, os.environ)
    except BadValue:
        raise
    except ShareError as error:
        return Settings(notes=(str(error),))


def _or_none(found: Share, name: str) -> float | None:
    try:
        value: float = getattr(found, name)
    except ShareError:
        return None
    return value


if __name__ == "__main__":
    sys.exit(main())
