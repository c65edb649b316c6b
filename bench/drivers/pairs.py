"""Runs one program on one driver twice, without and with the shim, and compares."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.drivers import comparing, wheels
from bench.drivers.comparing import Run
from bench.drivers.debian import Driver
from bench.drivers.wheels import Client
from cotenant.hardware import libraries, nvml, slots
from cotenant.hardware.standin import driver as standin

PROBES = Path(__file__).resolve().parent / "probes"
GIB = 1 << 30
STANDIN = "stand-in"


@dataclass(frozen=True)
class Pair:
    """What one client did on one driver."""

    driver: str
    client: str
    plain: Run
    shimmed: Run
    differences: tuple[str, ...]
    seconds: float

    @property
    def same(self) -> bool:
        """Also where it does not end well without the shim: that is none of the shim's doing."""
        return not self.differences

    @property
    def cell(self) -> str:
        if self.same:
            return self.plain.brief if self.plain.sound else f"{self.plain.brief} (both)"
        if self.plain.brief != self.shimmed.brief:
            return f"{self.plain.brief} ≠ {self.shimmed.brief}"
        return f"{self.plain.brief}, {len(self.differences)} differ"


class Machine:
    """A slot on the cards that are here, or on a simulated one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / STANDIN
        standin.create(self.state, standin.parse_spec("1x16GiB"), launch_seconds=0)
        self.simulated = [card.uuid for card in standin.StandIn(self.state).cards()]
        self.real = []
        with contextlib.suppress(nvml.NoDriver):
            self.real = [card.gpu.uuid for card in nvml.Nvml().read().cards]

    def environment(self, driver: Driver, shim: bool) -> dict[str, str]:
        kept = ("PATH", "HOME", "LANG", "TMPDIR", "USER")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        env |= {"PYTHONNOUSERSITE": "1", "LD_LIBRARY_PATH": str(driver.folder)}
        cards = self.real or self.simulated
        if driver.version.startswith(STANDIN):
            env, cards = standin.environment(self.state, env), self.simulated
        if shim:
            slot = self.folder / f"slot-{time.monotonic_ns()}"
            limits = tuple(slots.CardLimit(uuid, 8 * GIB, 256 << 20) for uuid in cards)
            slots.create(slot, slots.Limits("bench", "enforce", limits))
            env |= {"COTENANT_SLOT": str(slot), "LD_PRELOAD": str(libraries.shim())}
        return env

    def pair(self, driver: Driver, client: Client, home: Path | None) -> Pair:
        command = list(_command(driver, client, home))
        begin = time.monotonic()
        environments = [self.environment(driver, shim) for shim in (False, True)]
        plain, shimmed = (_run(command, env, client.seconds) for env in environments)
        if client.name == "lookups":
            tables = comparing.exports(driver.folder / "libcuda.so.1"), comparing.exports(libraries.shim())
            found = comparing.lookup_differences(plain, shimmed, *tables)
        else:
            found = comparing.differences(plain, shimmed)
        return Pair(driver.version, client.name, plain, shimmed, tuple(found), time.monotonic() - begin)


def simulated_driver() -> Driver:
    """Returns the stand-in as one more driver: it plays those that cannot be had."""
    return Driver(f"{STANDIN} {standin.DRIVER_VERSION}", libraries.standin_folder(), "this package")


def _command(driver: Driver, client: Client, home: Path | None) -> Iterator[str]:
    yield sys.executable if home is None else str(wheels.python(home))
    yield str(PROBES / f"{client.probe}.py")
    exported = [name for name in comparing.exports(driver.folder / "libcuda.so.1") if name.startswith("cu")]
    hooked = [name for name in comparing.exports(libraries.shim()) if name.startswith("cu")]
    match client.probe:
        case "calls":
            yield ",".join(sorted(hooked))
        case "lookups":
            yield ",".join(sorted({comparing.base(name) for name in (*exported, *hooked)}))
            yield ",".join(sorted(exported))
        case "cudart":
            assert home is not None
            yield str(next(home.rglob("libcudart.so.*")))


def _run(command: list[str], env: dict[str, str], seconds: int) -> Run:
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Run("hang")
    if process.returncode < 0:
        return Run(f"signal {-process.returncode}")
    if process.returncode:
        return Run((errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    return Run.of(json.loads(said.strip().splitlines()[-1]))
