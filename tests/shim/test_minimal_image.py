"""An image that has only what ldd names for its program: the shim must not keep the program from starting."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from shim.compiling import compiled
from shim.slotted import Bench

from cotenant.hardware import libraries

PROGRAMS = {
    "that only prints": r"""
        #include <stdio.h>
        int main(void) { puts("hello"); return 0; }
    """,
    "that forks": r"""
        #include <stdio.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) { int s = 1; if (fork() == 0) _exit(0); wait(&s); puts(s ? "?" : "hello"); return s; }
    """,
    "that looks for a driver": r"""
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) { puts(dlopen("libcuda.so.1", RTLD_NOW) ? "?" : "hello"); return 0; }
    """,
}


def image(root: Path, program: Path) -> None:
    """Makes a root with the program, what ldd names for it, and the shim for every program."""
    named = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for word in named.split():
        if word.startswith("/"):
            place = root / word.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, place)
    shutil.copy(program, root / "program")
    shutil.copy(libraries.shim(), root / "libcotenant.so")
    (root / "etc").mkdir()
    (root / "etc" / "ld.so.preload").write_text("/libcotenant.so\n")


@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("slot", [False, True], ids=["without a slot", "in a slot"])
def test_a_program_starts(bench: Bench, tmp_path: Path, kind: str, slot: bool):
    chroot = [shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin") or "chroot"]
    if os.geteuid() != 0:
        chroot = ["/usr/bin/unshare", "--map-root-user", *chroot]
    if subprocess.run([*chroot, "/", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not change the root")
    root = tmp_path / "root"
    root.mkdir()
    image(root, compiled(tmp_path, PROGRAMS[kind]))
    if slot:
        shutil.copytree(bench.slot, root / "run" / "cotenant" / "slot")
    done = subprocess.run(
        [*chroot, root, "/program"], env={}, capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
