"""Every binary of the testbed: found, or built once into the cache."""

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import places
from .compiling import Build, CannotBuild, compile_into, go

STAMP = "k8s.io/component-base/version"

NEW_ARCHITECTURES = {"LOONGARCH64": "0xC0000102u", "M68K": "4u", "SH": "0x4000002Au", "SHEB": "42u"}
"""Audit numbers that libseccomp's header lacks before 2.6. runc takes all it lacks for one, which clang refuses."""

Builder = Callable[[], object]


def kubernetes() -> None:
    """One binary that is etcd, every Kubernetes component and kubectl, by the name it is called by."""
    folder = places.kubernetes_folder()
    if not (folder / "kube").exists():
        with _alone():
            if not (folder / "kube").exists():
                compile_into(folder, _kubernetes(places.version()), go())
    for name in places.COMPONENTS:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to("kube")


def _kubernetes(version: str) -> Build:
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return Build(
        title=f"Kubernetes {version}",
        module=places.GO_MODULES / "kubernetes",
        modfile="go.mod" if version == places.KUBERNETES[0] else f"v{version}.mod",
        packages={"kube": "."},
        cpu_minutes=20,
        ldflags="-s -w " + " ".join(f"-X {STAMP}.{key}={value}" for key, value in stamps.items()),
    )


def runtime() -> None:
    """containerd, its shim, ctr, three CNI plugins, and runc."""
    if _has_runtime():
        return
    folder = places.runtime_folder()
    with _alone():
        if not all((folder / name).exists() for name in places.RUNTIME):
            compile_into(folder, _runtime(), go())
        if not _has_runtime():
            found = shutil.which("runc")
            if found:
                (folder / "runc").symlink_to(found)
            else:
                compile_into(folder, _runc(folder), go())


def _has_runtime() -> bool:
    return all((places.runtime_folder() / name).exists() for name in (*places.RUNTIME, "runc"))


def _runtime() -> Build:
    containerd = "github.com/containerd/containerd/v2"
    plugins = "github.com/containernetworking/plugins/plugins"
    return Build(
        title=f"containerd {places.CONTAINERD} and CNI plugins",
        module=places.GO_MODULES / "runtime",
        packages={
            "containerd": f"{containerd}/cmd/containerd",
            "containerd-shim-runc-v2": f"{containerd}/cmd/containerd-shim-runc-v2",
            "ctr": f"{containerd}/cmd/ctr",
            "bridge": f"{plugins}/main/bridge",
            "host-local": f"{plugins}/ipam/host-local",
            "loopback": f"{plugins}/main/loopback",
        },
        cpu_minutes=3,
        ldflags=f"-s -w -X {containerd}/version.Version={places.CONTAINERD}",
        tags="no_btrfs no_devmapper no_zfs",
    )


def _runc(folder: Path) -> Build:
    """runc needs cgo, and libseccomp: without it every sandbox is refused. zig compiles, Debian's package links."""
    libseccomp = _libseccomp(folder / "libseccomp")
    answer = folder / "libseccomp" / "pkg-config"
    libraries, headers = f"-L{libseccomp / 'lib'} -lseccomp", f"-I{libseccomp / 'usr/include'}"
    answer.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *--libs*) echo {shlex.quote(libraries)} ;; *) echo {shlex.quote(headers)} ;; esac\n'
    )
    answer.chmod(0o755)
    defined = [f"-DSCMP_ARCH_{name}={value}" for name, value in NEW_ARCHITECTURES.items()]
    return Build(
        title=f"runc {places.RUNC}",
        module=places.GO_MODULES / "runtime",
        packages={"runc": "github.com/opencontainers/runc"},
        cpu_minutes=1,
        ldflags=f"-s -w -X main.version={places.RUNC}",
        tags="seccomp",
        environment={
            "CGO_ENABLED": "1",
            "CC": f"{sys.executable} -m ziglang cc -target {os.uname().machine}-linux-gnu",
            "PKG_CONFIG": str(answer),
            "CGO_CFLAGS": " ".join(["-O2", "-fno-sanitize=undefined", *defined]),
        },
    )


def _libseccomp(folder: Path) -> Path:
    """Header and static library, unpacked without installing anything, so this needs no root."""
    folder.mkdir(parents=True, exist_ok=True)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise CannotBuild("runc is not on PATH, and without apt-get there is no libseccomp to build it with")
    fetched = subprocess.run(
        ["apt-get", "download", "-q", "libseccomp-dev"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    packages = sorted(folder.glob("libseccomp-dev_*.deb"))
    if fetched.returncode or not packages:
        raise CannotBuild(
            "runc is not on PATH, and apt-get could not download libseccomp-dev to build it with"
        )
    subprocess.run(["dpkg-deb", "-x", packages[-1], folder], check=True)
    (archive,) = folder.glob("usr/lib/*/libseccomp.a")
    (folder / "lib").mkdir(exist_ok=True)
    shutil.copy(archive, folder / "lib" / "libseccomp.a")
    return folder


def pause() -> Path:
    """What every sandbox runs, compiled by zig: static, so its image is this one file."""
    built = places.cache() / "pause"
    if not built.exists():
        source = Path(__file__).with_name("pause.c")
        target = ["-target", f"{os.uname().machine}-linux-musl", "-static", "-Os", "-s"]
        part = built.with_name(f".pause-{os.getpid()}")
        compiler = [sys.executable, "-m", "ziglang", "cc", *target]
        done = subprocess.run([*compiler, "-o", part, source], check=False, capture_output=True, text=True)
        if done.returncode:
            raise CannotBuild(f"the pause image: zig: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
        part.rename(built)
    return built


def helm() -> Path:
    """Helm, for the chart's tests and for the manifests that are rendered from it."""
    built = places.helm()
    if not built.exists():
        with _alone():
            if not built.exists():
                compile_into(built.parent, _helm(), go())
    return built


def _helm() -> Build:
    return Build(
        title=f"Helm {places.HELM}",
        module=places.GO_MODULES / "helm",
        packages={"helm": "helm.sh/helm/v3/cmd/helm"},
        cpu_minutes=6,
        ldflags=f"-s -w -X helm.sh/helm/v3/internal/version.version=v{places.HELM}",
    )


def keda() -> Path:
    """KEDA's operator, its metrics adapter and its CRDs. Not part of `make testbed`: it takes long, and few tests need it."""
    folder, build = places.keda(), _keda()
    with _alone():
        if not all((folder / name).exists() for name in build.packages):
            compile_into(folder, build, go())
        if not (folder / "crds").exists():
            _copy(_source("github.com/kedacore/keda/v2", build) / "config" / "crd" / "bases", folder / "crds")
    return folder


def _keda() -> Build:
    module = "github.com/kedacore/keda/v2"
    return Build(
        title=f"KEDA {places.KEDA}",
        module=places.GO_MODULES / "keda",
        packages={"operator": f"{module}/cmd/operator", "adapter": f"{module}/cmd/adapter"},
        cpu_minutes=11,
        ldflags=f"-s -w -X {module}/version.Version={places.KEDA}",
    )


def prometheus_adapter() -> Path:
    """Makes HPAs read what Prometheus has scraped. Built with KEDA: it plays in the same tests."""
    built = places.prometheus_adapter()
    with _alone():
        if not built.exists():
            compile_into(built.parent, _prometheus_adapter(), go())
    return built


def _prometheus_adapter() -> Build:
    return Build(
        title=f"prometheus-adapter {places.PROMETHEUS_ADAPTER}",
        module=places.GO_MODULES / "prometheusadapter",
        packages={places.prometheus_adapter().name: "sigs.k8s.io/prometheus-adapter/cmd/adapter"},
        cpu_minutes=4,
    )


def _source(module: str, build: Build) -> Path:
    """The folder of a module that `build` needs, as Go has unpacked it."""
    asked = [str(go()), "list", f"-modfile={build.module / build.modfile}", "-m", "-f", "{{.Dir}}", module]
    listed = subprocess.run(asked, cwd=build.module, check=False, capture_output=True, text=True)
    if listed.returncode:
        raise CannotBuild(f"{build.title}: {module}: {listed.stderr.strip()}")
    return Path(listed.stdout.strip())


def _copy(folder: Path, into: Path) -> None:
    """Go's own copy may be cleaned away. Renamed into place, so one that is there is whole."""
    part = into.with_name(f".{into.name}-{os.getpid()}")
    shutil.copytree(folder, part)
    part.rename(into)


def null_extender() -> Path:
    """The extender that says yes to everything: what a benchmark measures ours against."""
    built = places.cache() / "nullextender"
    if not built.exists():
        module = places.GO_MODULES / "nullextender"
        with _alone():
            compile_into(places.cache(), Build("null extender", module, {built.name: "."}, 0.2), go())
    return built


@contextmanager
def _alone() -> Iterator[None]:
    """Two runs that find the cache empty do not build the same thing twice at once."""
    places.cache().mkdir(parents=True, exist_ok=True)
    with (places.cache() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
