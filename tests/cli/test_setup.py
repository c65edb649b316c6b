"""`cotenant setup` by somebody who is not root: it finds itself where sudo would not."""

import os
import stat
import subprocess
import sys

import pytest

NOT_ROOT = ["unshare", "--user"]
"""A user namespace without a map: the same rights to files, and another user id than root's."""


@pytest.fixture
def installed(tmp_path):
    """The program as pipx installs it, in a folder that sudo's PATH does not have; and a sudo."""
    if subprocess.run([*NOT_ROOT, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces")
    folder = tmp_path / "bin"
    folder.mkdir()
    scripts = {
        "cotenant": f"#!{sys.executable}\nfrom cotenant.cli.main import main\n\nmain()\n",
        "sudo": '#!/bin/sh\necho "as root: $*"\n',
    }
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def environ(folder):
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "COTENANT_HOME": str(folder / "home")}


def test_in_a_terminal_it_calls_sudo_with_its_full_path(installed, open_terminal):
    terminal = open_terminal([*NOT_ROOT, "cotenant", "setup"], environ(installed))
    assert terminal.end() == 0
    assert f"as root: {installed}/cotenant setup" in terminal.text()


def test_a_script_is_told_the_line_to_type(installed):
    line = [*NOT_ROOT, "cotenant", "setup", "--folder", "all"]
    done = subprocess.run(
        line,
        env=environ(installed),
        cwd=installed,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1
    asked = f"sudo {installed}/cotenant setup --folder {installed}/all"
    assert done.stderr == f"cotenant: only root can create the folder for all users: {asked}\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may set up")
def test_root_is_told_that_others_cannot_run_it(installed):
    installed.chmod(stat.S_IRWXU)
    words = [installed / "cotenant", "setup", "--folder", installed / "all"]
    done = subprocess.run(words, env=environ(installed), capture_output=True, text=True, check=True)
    assert "other users cannot run cotenant, since" in done.stdout
    assert "docs/one-machine.md" in done.stdout
