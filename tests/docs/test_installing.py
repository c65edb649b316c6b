"""The lines by which one-machine.md installs, typed as they stand on a system whose Python is externally managed.

It needs root, a package index and some minutes, so it runs only if it is asked for: COTENANT_INSTALL=1.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pages
import pytest

ASKED = "COTENANT_INSTALL"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What sudo sets, whatever its caller's PATH is."""
SUDO = f'#!/bin/sh\nPATH={SYSTEM_PATH} exec "$@"\n'
OWN_FOLDERS = ("/opt", "/usr/local/bin", "/var/lib", "/etc/tmpfiles.d", "/dev/shm")
"""Hidden behind empty ones, in a mount namespace of the test."""

pytestmark = [
    pytest.mark.skipif(not os.environ.get(ASKED), reason=f"installs from a package index: {ASKED}=1"),
    pytest.mark.timeout(1200),
]


def install_lines() -> list[str]:
    return [each.text for each in pages.commands("one-machine") if each.section == "Install"]


def typed(lines: list[str], home: Path) -> str:
    """Types them in a copy of the tree, one after the other."""
    tree = home / "tree"
    kept = shutil.ignore_patterns(".git", ".venv", "native", ".*cache", "__pycache__")
    shutil.copytree(pages.ROOT, tree, ignore=kept)
    tools = home / "tools"
    tools.mkdir()
    (tools / "sudo").write_text(SUDO)
    (tools / "sudo").chmod(0o755)
    hidden = "".join(f"test ! -d {each} || mount -t tmpfs -o mode=755 tmpfs {each}; " for each in OWN_FOLDERS)
    script = "set -eux; " + hidden + "\n".join(lines)
    environ = {"HOME": str(home), "PATH": f"{tools}:{home}/.local/bin:{SYSTEM_PATH}"}
    environ |= {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "UV_"))}
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c", script],
        cwd=tree,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_in_a_virtual_environment(tmp_path: Path):
    (line,) = [each for each in install_lines() if each.startswith("python3 -m venv")]
    said = typed([line, "~/cotenant/bin/cotenant --simulate 1x16GiB gpus"], tmp_path)
    assert "NVIDIA Stand-in 16GiB" in said


def test_for_all_users_and_sudo_finds_it(tmp_path: Path):
    lines = [each for each in install_lines() if each.startswith("sudo")]
    assert lines[-1] == "sudo cotenant setup"
    other = "chmod 1777 /dev/shm; cd /; setpriv --reuid=65534 --regid=65534 --clear-groups cotenant --simulate 1x16GiB ps -o json"
    said = typed([*lines, other], tmp_path)
    assert "ready: /var/lib/cotenant" in said
    assert "other users cannot run" not in said
    assert '"home": "/var/lib/cotenant' in said
