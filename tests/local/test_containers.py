"""Commands that start containers are refused, and the advice given is a command that works."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from cotenant.core.errors import BadInput
from cotenant.local import containers

SHIM = Path("/opt/it's here/libcotenant.so")


@pytest.mark.parametrize(
    "command",
    [
        "docker run image",
        "/usr/bin/docker run -it image sh",
        "sudo docker run image",
        "sudo -E -u someone docker run image",
        "env A=1 docker run image",
        "nice -n 5 docker run image",
        "docker -H tcp://x:1 --log-level debug run image",
        "docker --context=far run image",
        "docker container run image",
        "docker create image",
        "podman run image",
        "podman --root /x run image",
        "nerdctl -n k8s.io run image",
        "sudo nohup podman container create image",
    ],
)
def test_starting_a_container_is_refused(command):
    with pytest.raises(BadInput, match="outside this grant"):
        containers.refuse(shlex.split(command), ["--gpu-memory", "4Gi"], SHIM, {})


@pytest.mark.parametrize(
    "command",
    [
        "docker ps",
        "docker build -t run .",
        "docker compose run x",
        "docker exec x run",
        "python docker run",
        "./docker-run.sh",
        "echo docker run",
        "docker",
        "sudo",
        "sudo -u docker ls",
        "sh -c 'docker run image'",
        "run docker",
    ],
)
def test_other_commands_are_not(command):
    containers.refuse(shlex.split(command), [], SHIM, {})


def advice(command, cards=None):
    with pytest.raises(BadInput) as refused:
        containers.refuse(command, ["--gpu-memory", "4Gi"], SHIM, cards or {})
    line = next(line for line in str(refused.value).splitlines() if line.startswith("  cotenant run"))
    return shlex.split(line)


def obey(tmp_path, words, engine):
    """Run the advised shell as a grant would, with a stand-in for the engine that tells its arguments."""
    fake = tmp_path / engine
    fake.write_text('#!/bin/sh\nfor each in "$@"; do printf "%s\\n" "$each"; done\n')
    fake.chmod(0o755)
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "COTENANT_SLOT": "/slots/x y",
        "COTENANT_STANDIN": "/cards",
    }
    return subprocess.check_output(words, env=environ, text=True).splitlines()


def test_the_advised_command_hands_over_card_slot_and_shim(tmp_path):
    words = advice(["docker", "run", "--rm", "image", "sh", "-c", "echo it's $HOME"])
    assert words[:5] == ["cotenant", "run", "--gpu-memory", "4Gi", "--"]
    assert obey(tmp_path, words[5:], "docker") == [
        "run",
        "--gpus",
        '"device=GPU-a,GPU-b"',
        "-v",
        "/slots/x y:/run/cotenant/slot",
        "-v",
        f"{SHIM}:/run/cotenant/libcotenant.so:ro",
        "-e",
        "LD_PRELOAD=/run/cotenant/libcotenant.so",
        "--rm",
        "image",
        "sh",
        "-c",
        "echo it's $HOME",
    ]


def test_podman_gets_a_device_for_each_card(tmp_path):
    told = obey(tmp_path, advice(["podman", "run", "image"])[5:], "podman")
    assert told[:5] == ["run", "--device", "nvidia.com/gpu=GPU-a", "--device", "nvidia.com/gpu=GPU-b"]


def test_simulated_cards_are_handed_over_as_files(tmp_path):
    told = obey(tmp_path, advice(["docker", "run", "image"], {"COTENANT_STANDIN": "/cards"})[5:], "docker")
    assert "COTENANT_STANDIN=/cards" in told
    assert "/cards:/cards" in told
    assert f"LD_LIBRARY_PATH={SHIM.parent / 'standin'}" in told
    assert "--gpus" not in told


def test_the_advice_is_not_refused_itself():
    containers.refuse(advice(["docker", "run", "image"])[5:], [], SHIM, {})
