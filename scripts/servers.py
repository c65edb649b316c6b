"""Fetches the servers that signals are tested with: Redis, RabbitMQ, NATS and Prometheus.

    python scripts/servers.py

What is on PATH is taken. The rest are Debian's packages, with those that they need and this machine lacks:
downloaded by apt and unpacked into ${XDG_CACHE_HOME:-~/.cache}/cotenant/servers, once. Nothing is installed,
and root is not needed. Where a machine cannot have one, a line says why, and its tests are skipped with that
reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {
    "redis": "redis-server",
    "rabbitmq": "rabbitmq-server",
    "nats": "nats-server",
    "prometheus": "prometheus",
}
"""A server's package, whose program has the same name."""
ERLANG = "usr/lib/erlang"


class CannotGet(Exception):
    """A server cannot be had here; the message says why."""


@dataclass(frozen=True)
class Program:
    """A server's program, and the environment that it needs to be started with."""

    path: Path
    environment: dict[str, str]


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "cotenant" / "servers"


def find(name: str) -> Program:
    """Returns a server that is here; CannotGet says why it is not."""
    here = folder() / name
    if (here / ".complete").exists():
        return _unpacked(name, here)
    if (path := shutil.which(PACKAGES[name])) and name != "rabbitmq":
        return Program(Path(path), {})
    if (here / ".missing").exists():
        raise CannotGet((here / ".missing").read_text())
    raise CannotGet(f"{name} is not here: python scripts/servers.py fetches it")


def _unpacked(name: str, here: Path) -> Program:
    libraries = [str(each) for each in here.glob("root/usr/lib/*-linux-gnu")]
    environment = {"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {}
    if name != "rabbitmq":
        (path,) = here.glob(f"root/usr/*bin/{PACKAGES[name]}")
        return Program(path, environment)
    (path,) = here.glob("root/usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server")
    erlang = here / "root" / ERLANG / "bin"
    return Program(path, environment | {"PATH": f"{erlang}:{os.environ.get('PATH', '')}"})


def fetch(name: str) -> None:
    """Downloads and unpacks a server, unless it is here; a machine that cannot have it keeps the reason."""
    here = folder() / name
    if (here / ".complete").exists() or (shutil.which(PACKAGES[name]) and name != "rabbitmq"):
        return
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    try:
        for archive in _downloaded(PACKAGES[name], here):
            subprocess.run(["dpkg-deb", "--extract", archive, here / "root"], check=True)
            archive.unlink()
        if name == "rabbitmq":
            _move_erlang(here / "root")
        _unpacked(name, here)
    except (CannotGet, OSError, subprocess.CalledProcessError, ValueError) as error:
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        (here / ".missing").write_text(f"{name} cannot be had on this machine: {error}")
        raise CannotGet((here / ".missing").read_text()) from None
    (here / ".complete").touch()


def _downloaded(package: str, here: Path) -> Iterator[Path]:
    """Downloads a package and what it needs that this machine lacks, by this machine's sources of apt."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise CannotGet("there is no apt-get here; install it yourself, so that it is on PATH")
    for own in (False, True):
        # This machine's lists may be absent, or older than what the mirror still has.
        if own and (updated := _apt(here, ["apt-get", "update"], own=True)).returncode:
            raise CannotGet(f"apt-get update fails: {_last(updated)}")
        done = _apt(here, ["apt-get", "install", "--download-only", package], own=own)
        archives = sorted((here / "apt/archives").glob("*.deb"))
        if done.returncode == 0 and archives:
            break
    else:
        raise CannotGet(f"apt-get cannot download {package}: {_last(done)}")
    yield from archives
    shutil.rmtree(here / "apt", ignore_errors=True)


def _apt(here: Path, command: list[str], *, own: bool) -> subprocess.CompletedProcess[str]:
    """Runs apt-get with archives of its own, and lists of its own where this machine has none."""
    for part in ("archives/partial", "state/lists/partial"):
        (here / "apt" / part).mkdir(parents=True, exist_ok=True)
    options = [
        f"Dir::Cache={here / 'apt'}",
        "Dir::Cache::pkgcache=",
        "Dir::Cache::srcpkgcache=",
        "Debug::NoLocking=1",
        "APT::Install-Recommends=false",
        "APT::Sandbox::User=",
        "Acquire::Languages=none",
        "Acquire::Retries=2",
        "Acquire::http::Timeout=30",
    ]
    if own:
        options += [f"Dir::State={here / 'apt/state'}", "Dir::State::status=/var/lib/dpkg/status"]
    words = [word for option in options for word in ("-o", option)]
    return subprocess.run(
        [command[0], "-qq", "-y", *words, *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {done.returncode}"


def _move_erlang(root: Path) -> None:
    """Erlang's start scripts have the path that it is installed at; this one is elsewhere."""
    for script in (*root.glob(f"{ERLANG}/bin/*"), *root.glob(f"{ERLANG}/erts-*/bin/*")):
        if script.is_file() and not script.is_symlink() and script.read_bytes()[:2] == b"#!":
            script.write_text(script.read_text().replace(f"/{ERLANG}", str(root / ERLANG)))


def main() -> None:
    for name in PACKAGES:
        try:
            fetch(name)
        except CannotGet as missing:
            print(missing)


if __name__ == "__main__":
    main()
