"""Installs packages into this environment: by uv, which takes seconds where pip takes a minute, else by pip.

    python scripts/install.py hatchling 'ziglang==0.17.0'
    python scripts/install.py -r requirements.txt

The arguments are those that `pip install` and `uv pip install` share. Modules are compiled at once, as pip
does unasked: else each command compiles what it imports, where it may not write. uv does not read pip's
configuration: an index and folders of packages that are set for pip are handed on. What uv cannot do, pip is
asked to do, and pip's answer counts.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
SHARED = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
"""A setting of pip, and the variable by which uv is told the same."""


def install(arguments: Sequence[str], python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Installs into the environment of `python`; returns what the installer that was asked last has said."""
    if importlib.util.find_spec("uv") is None:
        subprocess.run([*PIP, "install", "uv"], capture_output=True, check=False)
    options = ["--quiet", "--compile-bytecode", "--python", python]
    uv = [sys.executable, "-m", "uv", "pip", "install", *options, *arguments]
    done = _run(uv, {**os.environ, **for_uv(_configured())})
    if done.returncode == 0:
        return done
    return _run([*PIP, "--python", python, "install", *arguments], os.environ)


def for_uv(configured: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Reads the output of `pip config list`; returns uv's variables, but for those that are set already."""
    found = {}
    for line in configured.splitlines():
        name, _, value = line.partition("=")
        variable = SHARED.get(name.rpartition(".")[2])
        if variable and variable not in environ:
            separator = "," if variable == "UV_FIND_LINKS" else " "
            found[variable] = separator.join(value.strip("'\"").replace("\\n", " ").split())
    return found


def _configured() -> str:
    return subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout


def _run(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    result = install(sys.argv[1:])
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    sys.exit(result.returncode)
