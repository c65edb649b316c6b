"""Refuses `docker run` and the like as the command: a daemon starts the container, outside the grant.

The message has the command that works instead: a shell inside the grant, which passes the grant's GPU, slot
and shim on to the container.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from cotenant.core.errors import BadInput
from cotenant.hardware.enforcers.shim import (
    IN_CONTAINER,
    LIBRARY,
    PRELOAD_VARIABLE,
    SLOT_IN_CONTAINER,
    SLOT_VARIABLE,
)

ENGINES = ("docker", "podman", "nerdctl")
SHIM = IN_CONTAINER / LIBRARY

_STARTERS = ("run", "create")
# fmt: off
_WITH_VALUE = frozenset(
    {
        "-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--tlscacert",
        "--tlscert", "--tlskey",
        "--url", "--connection", "--root", "--runroot", "--identity", "--storage-driver",
        "--storage-opt", "--cgroup-manager", "--conmon", "--events-backend", "--hooks-dir",
        "--module", "--network-cmd-path", "--runtime", "--runtime-flag", "--ssh", "--tmpdir",
        "--volumepath", "--out", "--imagestore",
        "-n", "--namespace", "-a", "--address", "--snapshotter", "--cni-path", "--cni-netconfpath",
        "--data-root", "--hosts-dir", "--host-gateway-ip",
    }
)
"""Options of docker, podman and nerdctl, before the subcommand, whose value is the next word."""
_SUDO_WITH_VALUE = frozenset(
    {
        "-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "-D", "--chdir",
        "-R", "--chroot", "-r", "-t", "-T",
    }
)
# fmt: on
_WRAPPERS = ("sudo", "doas", "env", "nice", "ionice", "nohup", "time", "exec", "command", "setsid", "stdbuf")


def refuse(command: Sequence[str], options: Sequence[str], shim: Path, cards: Mapping[str, str]) -> None:
    """Raises BadInput if the command starts a container.

    `options` are those of this `cotenant run`, to show them again; `cards` is what simulated GPUs need.
    """
    at = _engine_at(command)
    if at is None:
        return
    end = _starter_at(command, at + 1)
    if end is None:
        return
    engine = os.path.basename(command[at])
    flags = [
        *(_simulated_flags(shim) if cards else [_cards_flag(engine)]),
        f'-v "${SLOT_VARIABLE}:{SLOT_IN_CONTAINER}"',
        f"-v {shlex.quote(str(shim))}:{SHIM}:ro",
        f"-e {PRELOAD_VARIABLE}={SHIM}",
    ]
    script = " ".join(["exec", shlex.join(command[: end + 1]), *flags, shlex.join(command[end + 1 :])])
    if any(os.path.basename(word) in ("sudo", "doas") for word in command[:at]):
        note = "\nsudo drops the environment: here the shell fills in the values before sudo runs."
    else:
        note = ""
    raise BadInput(
        f"`{engine} {command[end]}` lets a daemon start the container, outside this grant: "
        "no limit would hold. "
        f"Add these flags to it, and let a shell inside the grant fill them in:\n\n"
        f"  {shlex.join(['cotenant', 'run', *options])} -- sh -c {shlex.quote(script)}\n\n"
        "The image must use glibc (Alpine does not). Keep it in the foreground (no -d): the grant lasts as "
        f"long as `{engine} {command[end]}` does, and longer only while a process in the container uses the "
        f"card.{note}"
    )


def _cards_flag(engine: str) -> str:
    if engine == "podman":
        return '$(printf -- "--device nvidia.com/gpu=%s " $(echo "$CUDA_VISIBLE_DEVICES" | tr , " "))'
    return '--gpus "\\"device=$CUDA_VISIBLE_DEVICES\\""'


def _simulated_flags(shim: Path) -> list[str]:
    """Lists the options that pass on the stand-in driver and its shared file: there is no GPU to pass on."""
    driver = shlex.quote(str(shim.parent / "standin"))
    return [
        '-e "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"',
        '-e "COTENANT_STANDIN=$COTENANT_STANDIN"',
        '-v "$COTENANT_STANDIN:$COTENANT_STANDIN"',
        f"-e LD_LIBRARY_PATH={driver}",
        f"-v {driver}:{driver}:ro",
    ]


def _engine_at(command: Sequence[str]) -> int | None:
    """Returns the index of the engine's name, after wrappers such as sudo and their options."""
    at = 0
    while at < len(command):
        word = os.path.basename(command[at])
        if word in ENGINES:
            return at
        if word not in _WRAPPERS:
            return None
        at += 1
        while at < len(command) and (command[at].startswith("-") or _is_assignment(command[at])):
            at += 2 if word in ("sudo", "doas") and command[at] in _SUDO_WITH_VALUE else 1
        if word in ("nice", "ionice") and at < len(command) and command[at].lstrip("-").isdigit():
            at += 1
    return None


def _starter_at(command: Sequence[str], at: int) -> int | None:
    """Returns the index of `run` or `create`, after the engine's options and an optional `container`."""
    while at < len(command):
        word = command[at]
        if word in _STARTERS:
            return at
        if word.startswith("-"):
            at += 2 if word in _WITH_VALUE else 1
        elif word == "container":
            at += 1
        else:
            return None
    return None


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()
