"""Gives the grant to a container that `docker run`, `podman run` or `nerdctl run` starts.

A container does not inherit the environment and the files of the command that asks for it, and docker's and
nerdctl's are started by a daemon. So GPU, slot and shim are given to it by options, which are inserted here.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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
_OUTSIDE = frozenset({"compose", "start", "restart", "exec", "kube", "play", "stack", "service"})
"""Subcommands that start processes in containers, and take no options for a grant."""
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
# fmt: off
_SWITCHES = frozenset(
    {
        "--detach", "--disable-content-trust", "--env-host", "--help", "--http-proxy", "--init",
        "--interactive", "--no-healthcheck", "--no-hostname", "--no-hosts", "--oom-kill-disable",
        "--passwd", "--privileged", "--publish-all", "--quiet", "--read-only", "--read-only-tmpfs",
        "--replace", "--rm", "--rmi", "--rootfs", "--sig-proxy", "--tls-verify", "--tty",
        "--unsetenv-all", "--use-api-socket",
    }
)
"""Options of `run` without a value; all others take the next word."""
# fmt: on
_LETTERS = frozenset("ditPq")


class ContainerStart(NamedTuple):
    """A command that starts a container."""

    engine: str
    """`docker`, `podman` or `nerdctl`."""
    command: tuple[str, ...]
    starter: int
    """The position of `run` in the command: options follow it."""


class Inserted(NamedTuple):
    """What the options refer to."""

    slot: str
    uuids: tuple[str, ...]
    shim: Path
    standin: str | None
    """The file of the simulated GPUs; None for real ones."""


def find(command: Sequence[str]) -> ContainerStart | None:
    """Recognises a command that starts a container, and raises BadInput if its grant could not hold."""
    at = _engine_at(command)
    end = None if at is None else _starter_at(command, at + 1)
    if at is None or end is None:
        return None
    engine = os.path.basename(command[at])
    if command[end] == "create":
        raise BadInput(
            f"`{engine} create` starts nothing, and a grant lasts only while its command runs: "
            f"take `{engine} run`"
        )
    for option, value in _options(command[end + 1 :]):
        _check(engine, option, value)
    return ContainerStart(engine, tuple(command), end)


def outside(command: Sequence[str]) -> str | None:
    """Names a command of an engine that starts processes which the grant cannot reach; None for others."""
    at = _engine_at(command)
    word = None if at is None else next((each for each in command[at + 1 :] if each in _OUTSIDE), None)
    if at is None or word is None or find(command) is not None:
        return None
    return f"{os.path.basename(command[at])} {word}"


def with_grant(start: ContainerStart, grant: Inserted) -> tuple[str, ...]:
    """Returns the command with the options that give the container its GPUs, its slot and the shim."""
    after = start.starter + 1
    return (*start.command[:after], *_flags(start.engine, grant), *start.command[after:])


def as_script(start: ContainerStart, options: Sequence[str], shim: Path, *, simulated: bool) -> str:
    """Renders the same as a command line for a shell, which fills in the grant: for people who want to see or
    change it. `options` are those of this `cotenant run`.
    """
    marks = Inserted("\0SLOT", ("\0GPUS",), shim, "\0STANDIN" if simulated else None)
    after = start.starter + 1
    flags = " ".join(_for_shell(flag) for flag in _flags(start.engine, marks))
    if start.engine == "podman" and not simulated:
        each = '$(printf -- "--device nvidia.com/gpu=%s " $(echo "$CUDA_VISIBLE_DEVICES" | tr , " "))'
        flags = flags.replace('--device "nvidia.com/gpu=$CUDA_VISIBLE_DEVICES"', each)
    script = f"exec {shlex.join(start.command[:after])} {flags} {shlex.join(start.command[after:])}"
    return f"{shlex.join(['cotenant', 'run', *options])} -- sh -c {shlex.quote(script)}"


def _flags(engine: str, grant: Inserted) -> list[str]:
    flags = []
    if grant.standin is not None:  # there is no GPU to pass on, but the stand-in driver and its file
        driver = str(grant.shim.parent / "standin")
        flags += ["-e", f"CUDA_VISIBLE_DEVICES={','.join(grant.uuids)}"]
        flags += ["-e", f"COTENANT_STANDIN={grant.standin}", "-v", f"{grant.standin}:{grant.standin}"]
        flags += ["-e", f"LD_LIBRARY_PATH={driver}", "-v", f"{driver}:{driver}:ro"]
    elif engine == "podman":
        flags += [word for uuid in grant.uuids for word in ("--device", f"nvidia.com/gpu={uuid}")]
    else:
        flags += ["--gpus", f'"device={",".join(grant.uuids)}"']  # a CSV field: the quotes keep it together
    # Only `usage` is writable: root in the container cannot raise its limit.
    return [
        *flags,
        *("-v", f"{grant.slot}:{SLOT_IN_CONTAINER}:ro"),
        *("-v", f"{grant.slot}/usage:{SLOT_IN_CONTAINER}/usage"),
        *("-v", f"{grant.shim}:{SHIM}:ro"),
        *("-e", f"{PRELOAD_VARIABLE}={SHIM}"),
    ]


def _for_shell(flag: str) -> str:
    """Quotes an option for a shell; what stands for the grant becomes the variable that has it."""
    variables = {
        "\0SLOT": f"${SLOT_VARIABLE}",
        "\0GPUS": "$CUDA_VISIBLE_DEVICES",
        "\0STANDIN": "$COTENANT_STANDIN",
    }
    if not any(mark in flag for mark in variables):
        return shlex.quote(flag)
    text = "".join(f"\\{sign}" if sign in '"\\$`' else sign for sign in flag)
    for mark, variable in variables.items():
        text = text.replace(mark, variable)
    return f'"{text}"'


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Lists the options of `run` with their values, up to the image; a switch has the value of its `=`."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            return
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if not equals and name not in _SWITCHES:
                value, at = (words[at] if at < len(words) else ""), at + 1
            yield name, value
            continue
        for place, letter in enumerate(word[1:], start=1):
            if letter in _LETTERS:
                yield f"-{letter}", ""
                continue
            value = word[place + 1 :].removeprefix("=")
            if not value:
                value, at = (words[at] if at < len(words) else ""), at + 1
            yield f"-{letter}", value
            break


def _check(engine: str, option: str, value: str) -> None:
    """Refuses an option with which the grant would not hold."""
    if option in ("-d", "--detach") and value.lower() not in ("false", "0", "f"):
        raise BadInput(
            f"{option}: the grant lasts while `{engine} run` does: leave it out, and send the whole "
            "`cotenant run` to the background instead, with & or nohup"
        )
    variable = value.partition("=")[0] if option in ("-e", "--env") else ""
    names_gpus = option == "--gpus" or (option == "--device" and "nvidia" in value)
    if names_gpus or variable == "NVIDIA_VISIBLE_DEVICES":
        raise BadInput(
            f"{option} {value}: the grant decides which GPUs the container sees: leave it out; to choose a "
            "GPU, write `cotenant run --gpu ...` or --gpu-model"
        )
    if variable == PRELOAD_VARIABLE:
        raise BadInput(
            f"{option} {value}: the shim is preloaded there, without it no limit holds: leave it out"
        )


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
