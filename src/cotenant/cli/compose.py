"""Builds the Machine that local commands work on, from environment variables and --simulate."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cotenant.core.units import check_unit, parse_bytes, parse_duration
from cotenant.hardware import libraries
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.nvml import Nvml
from cotenant.local import home
from cotenant.local.machine import PATIENCE, Machine
from cotenant.local.settings import load_caps
from cotenant.local.store import LedgerStore

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT_MEMORY = "512Mi"
"""Default memory charged for a CUDA context: the usual size on recent GPUs."""
ITSELF = (sys.executable, "-m", "cotenant.cli.main")


def simulate_option(function: F) -> F:
    """Adds --simulate to a subcommand; it takes precedence over the one before the subcommand."""

    def keep(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.obj = value

    return click.option(
        "--simulate",
        metavar="SPEC",
        expose_value=False,
        callback=keep,
        help="Use simulated GPUs, such as 2x16GiB or 2xA100-80GB,1xT4.",
    )(function)


def output_option(function: F) -> F:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="json has stable names, and bytes as integers.",
    )(function)


def machine_of(simulate: str | None) -> Machine:
    """Builds the machine with its real GPUs, or with simulated ones and a separate ledger."""
    patience = os.environ.get("COTENANT_PATIENCE")
    waits = PATIENCE if not patience else parse_duration(patience, "COTENANT_PATIENCE")
    base = home.choose(os.environ)
    if simulate:
        return _simulated(simulate, base, waits)
    context = os.environ.get("COTENANT_CONTEXT_MEMORY") or CONTEXT_MEMORY
    check_unit(context, "COTENANT_CONTEXT_MEMORY")
    place = home.prepare(base)
    return Machine(
        home=place,
        store=LedgerStore(place),
        cards=Nvml(),
        shim=Shim(libraries.shim()),
        context_bytes=parse_bytes(context, "COTENANT_CONTEXT_MEMORY"),
        patience=waits,
        caps=load_caps(),
        itself=ITSELF,
    )


def ledger_file(simulate: str | None) -> Path:
    """Returns where the ledger is, or would be: nothing is created."""
    base = home.choose(os.environ)
    folder = base / "simulated" / home.slug(simulate) if simulate else base
    return folder / home.LEDGER


def _simulated(spec: str, base: Path, patience: float) -> Machine:
    from cotenant.hardware.standin import driver as standin

    described = standin.parse_description(spec)  # before anything is created: it may be refused
    place = home.prepare(base, spec)
    if not place.standin.exists():  # each spec has its own folder, so what exists matches the spec
        standin.create(place.standin, described.cards, driver=described.driver)
    cards = standin.environment(place.standin, {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")})
    return Machine(
        home=place,
        store=LedgerStore(place),
        cards=Nvml(libraries.standin_nvml(), {"COTENANT_STANDIN": str(place.standin)}),
        shim=Shim(libraries.shim()),
        context_bytes=standin.context_bytes(place.standin),
        patience=patience,
        caps=load_caps(),
        card_environment={**cards, "COTENANT_SIMULATE": spec},
        itself=(*ITSELF, "--simulate", spec),
    )
