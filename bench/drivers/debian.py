"""Fetches NVIDIA's libcuda and NVML, every version that Debian's suites carry.

Mirrors, proxies and keys are those that apt is configured with on this machine. apt works in a folder of its
own: nothing is installed, and the machine's package lists stay as they are. It checks signatures and sums.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.drivers.storage import CannotGet, check_room, folder

RELEASES = ("bullseye", "bookworm", "trixie", "forky", "sid", "experimental")
VARIANTS = ("", "-updates", "-backports", "-proposed-updates", "-security")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LARGEST = 64 << 20
"""Bytes that the two packages of one version take, unpacked: half of this so far."""
CUDA = re.compile(r"libcuda1|libnvidia-(?:tesla|legacy)-(?:\w+-)?cuda1")


@dataclass(frozen=True)
class Driver:
    """One version of the driver's libraries for programs."""

    version: str
    folder: Path
    """Has libcuda.so.1, and libnvidia-ml.so.1 if that could be had."""
    origin: str

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", self.version))


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    suite: str

    @property
    def upstream(self) -> str:
        """The driver's version without Debian's revision."""
        return self.version.rsplit("-", 1)[0].split(":", 1)[-1]

    @property
    def loader(self) -> str:
        """The package of a library that libcuda before 450 needs; later ones do not have it."""
        return self.name.replace("libcuda1", "libnvidia-cuda1").replace("-cuda1", "-fatbinaryloader")

    @property
    def nvml(self) -> str:
        return "libnvidia-ml1" if self.name == "libcuda1" else self.name.replace("-cuda1", "-ml1")


def mirrors() -> dict[str, str]:
    """Returns the addresses of the main archive and the security archive, as apt has them."""
    if shutil.which("apt-get") is None:
        raise CannotGet("apt-get is not here: Debian's packages are fetched with it")
    question = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]
    listed = subprocess.run(question, capture_output=True, text=True, check=False)
    found: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        uri, _, release = line.partition(" ")
        if release.split("-")[0] in RELEASES:
            found.setdefault("security" if release.endswith("-security") else "main", uri.rstrip("/"))
    if not found:
        raise CannotGet(
            "apt has no index of a Debian suite: add a Debian mirror to apt's sources and run apt-get update"
        )
    return found


class Apt:
    """apt-get and apt-cache on sources, lists and archives of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for part in ("etc", "state/lists/partial", "cache/archives/partial"):
            (home / part).mkdir(parents=True, exist_ok=True)
        (home / "status").touch()
        machine = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
        self.options = [
            f"Dir::Etc={home / 'etc'}",
            "Dir::Etc::sourcelist=/dev/null",
            f"Dir::Etc::sourceparts={home / 'etc'}",
            f"Dir::State={home / 'state'}",
            f"Dir::State::status={home / 'status'}",
            f"Dir::Cache={home / 'cache'}",
            "Dir::Cache::pkgcache=",
            "Dir::Cache::srcpkgcache=",
            "APT::Update::Post-Invoke=",
            "APT::Sandbox::User=root",
            f"APT::Architectures={machine.stdout.strip()}",
            "Acquire::Languages=none",
            "Acquire::Retries=2",
        ]

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command, *rest = words
        options = [word for option in self.options for word in ("-o", option)]
        return subprocess.run(
            [command, *options, *rest], cwd=cwd, capture_output=True, text=True, check=False
        )

    def update(self) -> dict[str, str]:
        """Reads the index of every suite; returns why, for those that could not be read."""
        main, security = self._sources()
        text = "".join(
            f"Types: deb\nURIs: {uri}\nSuites: {' '.join(suites)}\nComponents: non-free\n"
            + (f"Signed-By: {KEYRING}\n" if KEYRING.exists() else "")
            + "\n"
            for uri, suites in (main, security)
            if uri and suites
        )
        (self.home / "etc" / "debian.sources").write_text(text)
        said = self.run("apt-get", "update")
        missing = {} if security[0] else {"*-security": "apt has no security archive among its sources"}
        for line in (said.stdout + said.stderr).splitlines():
            if bad := re.search(r"[EW]: .*?(\S+) (?:In)?Release(?::|'| )(.*)", line):
                missing[bad[1]] = bad[2].strip(" '") or "not there"
        return missing

    def _sources(self) -> tuple[tuple[str, list[str]], tuple[str, list[str]]]:
        known = mirrors()
        suites = [each + part for each in RELEASES for part in VARIANTS if _exists(each, part)]
        security = [suite for suite in suites if suite.endswith("-security")]
        return (
            (known.get("main", ""), [suite for suite in suites if suite not in security]),
            (known.get("security", ""), security),
        )

    def packages(self) -> Iterator[Package]:
        names = [name for name in self.run("apt-cache", "pkgnames").stdout.split() if CUDA.fullmatch(name)]
        if names:
            for line in self.run("apt-cache", "madison", *sorted(names)).stdout.splitlines():
                name, version, where = (part.strip() for part in line.split("|"))
                yield Package(name, version, where.split()[1].split("/")[0])


def _exists(release: str, variant: str) -> bool:
    """Whether Debian has such suites at all: sid and experimental are one suite each."""
    return not variant or release not in ("sid", "experimental", "forky")


def fetch() -> tuple[list[Driver], dict[str, str]]:
    """Returns a driver for each version that some suite carries, and why others could not be had."""
    apt = Apt(folder() / "apt")
    missing = apt.update()
    drivers: dict[str, Driver] = {}
    for package in apt.packages():
        if package.upstream in drivers:
            continue
        home = folder() / "debian" / package.upstream
        try:
            _unpack(apt, package, home)
        except CannotGet as error:
            missing[f"{package.name} {package.version} of {package.suite}"] = str(error)
            continue
        drivers[package.upstream] = Driver(package.upstream, home, f"Debian {package.suite}")
        missing.pop(f"NVML {package.upstream}", None)
        if not (home / "libnvidia-ml.so.1").exists():
            missing[f"NVML {package.upstream}"] = f"{package.nvml} of this version is in no suite"
    return sorted(drivers.values(), key=lambda driver: driver.order), missing


def _unpack(apt: Apt, package: Package, home: Path) -> None:
    """Puts libcuda.so.1 and libnvidia-ml.so.1 of a version into `home`; once."""
    if (home / ".complete").exists():
        return
    check_room(LARGEST)
    scratch = home / "scratch"
    shutil.rmtree(home, ignore_errors=True)
    scratch.mkdir(parents=True)
    for name in (package.name, package.nvml, package.loader):
        got = apt.run("apt-get", "download", f"{name}={package.version}", cwd=scratch)
        if got.returncode and name == package.name:
            raise CannotGet((got.stderr.strip().splitlines() or ["apt-get download failed"])[-1])
    for archive in scratch.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", archive, scratch], check=True)
    for real in [path for path in scratch.rglob(f"lib*.so.{package.upstream}") if path.is_file()]:
        name = real.name.removesuffix(package.upstream) + "1"
        real.rename(home / (name if name in ("libcuda.so.1", "libnvidia-ml.so.1") else real.name))
    if not (home / "libcuda.so.1").exists():
        raise CannotGet(f"{package.name} {package.version} has no libcuda.so.{package.upstream}")
    (home / "libcuda.so").symlink_to("libcuda.so.1")
    shutil.rmtree(scratch)
    (home / ".complete").touch()
