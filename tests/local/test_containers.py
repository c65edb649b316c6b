"""Commands that start a container get the options that give it the grant."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.core.errors import BadInput
from cotenant.local import containers, processes
from cotenant.local.containers import Inserted

SHIM = Path("/opt/it's here/libcotenant.so")
GRANT = Inserted("/slots/x y", ("GPU-a", "GPU-b"), SHIM, None)
SIMULATED = GRANT._replace(standin="/cards")
PROGRAM = Path(__file__).with_name("program.py")

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a file system")


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
        "podman run image",
        "podman --root /x run image",
        "nerdctl -n k8s.io run image",
        "sudo nohup podman container run image",
    ],
)
def test_starting_a_container_is_seen_and_the_options_follow_run(command):
    words = shlex.split(command)
    start = containers.find(words)
    at = words.index("run") + 1
    given = containers.with_grant(start, GRANT)
    assert list(given[:at]) == words[:at]
    assert list(given[at - len(words) :]) == words[at:]
    assert len(given) > len(words)


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
def test_other_commands_are_left_alone(command):
    assert containers.find(shlex.split(command)) is None


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("docker compose run x", "docker compose"),
        ("sudo docker compose -f x.yaml up", "docker compose"),
        ("docker start -a x", "docker start"),
        ("podman exec x nvidia-smi", "podman exec"),
        ("docker ps", None),
        ("docker run image exec start", None),
        ("python compose", None),
    ],
)
def test_what_starts_containers_out_of_reach_is_named(command, named):
    assert containers.outside(shlex.split(command)) == named


SLOT_AND_SHIM = [
    "-v",
    "/slots/x y:/run/cotenant/slot:ro",
    "-v",
    "/slots/x y/usage:/run/cotenant/slot/usage",
    "-v",
    f"{SHIM}:/run/cotenant/libcotenant.so:ro",
    "-e",
    "LD_PRELOAD=/run/cotenant/libcotenant.so",
]


@pytest.mark.parametrize("engine", ["docker", "nerdctl"])
def test_gpus_slot_and_shim_are_handed_over(engine):
    words = [engine, "run", "--rm", "image", "sh", "-c", "echo it's $HOME"]
    given = containers.with_grant(containers.find(words), GRANT)
    assert list(given) == [*words[:2], "--gpus", '"device=GPU-a,GPU-b"', *SLOT_AND_SHIM, *words[2:]]


def test_podman_gets_a_device_for_each_gpu():
    given = containers.with_grant(containers.find(["podman", "run", "image"]), GRANT)
    devices = ["--device", "nvidia.com/gpu=GPU-a", "--device", "nvidia.com/gpu=GPU-b"]
    assert list(given) == ["podman", "run", *devices, *SLOT_AND_SHIM, "image"]


def test_simulated_gpus_are_handed_over_as_files():
    given = containers.with_grant(containers.find(["docker", "run", "image"]), SIMULATED)
    assert "COTENANT_STANDIN=/cards" in given
    assert "/cards:/cards" in given
    assert "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b" in given
    assert f"LD_LIBRARY_PATH={SHIM.parent / 'standin'}" in given
    assert "--gpus" not in given


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("docker create image", "docker create` starts nothing"),
        ("docker run -d image", "-d: the grant lasts while"),
        ("docker run -itd image", "-d: the grant lasts while"),
        ("docker run --rm --name x --detach image", "--detach: the grant lasts while"),
        ("podman run --detach=true image", "the grant lasts while"),
        ("docker run --gpus all image", "the grant decides which GPUs"),
        ("docker run --gpus=all image", "the grant decides which GPUs"),
        ("docker run -v /a:/b -e NVIDIA_VISIBLE_DEVICES=all image", "the grant decides which GPUs"),
        ("podman run --device nvidia.com/gpu=all image", "the grant decides which GPUs"),
        ("docker run --device=/dev/nvidia0 image", "the grant decides which GPUs"),
        ("docker run -eLD_PRELOAD=/x.so image", "no limit holds"),
        ("docker run --env LD_PRELOAD image", "no limit holds"),
    ],
)
def test_what_would_not_hold_is_refused_with_the_remedy(command, words):
    with pytest.raises(BadInput) as refused:
        containers.find(shlex.split(command))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        "docker run image -d",
        "docker run --rm image train --gpus all -e LD_PRELOAD=x",
        "docker run --name detach -h d image",
        "docker run --detach=false image",
        "docker run -w /d --entrypoint -d image",
        "docker run -e A=1 -e LD_PRELOADS=1 --device /dev/fuse image",
        "podman run --rm -- image -d",
    ],
)
def test_what_belongs_to_the_image_or_harms_nothing_is_not_refused(command):
    assert containers.find(shlex.split(command)) is not None


def printed(command, *, simulated=False):
    line = containers.as_script(containers.find(command), ["--gpu-memory", "4Gi"], SHIM, simulated=simulated)
    return shlex.split(line)


def as_grant(tmp_path, words, engine):
    """Run the printed shell as a grant would, with a stand-in for the engine that says its arguments."""
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


@pytest.mark.parametrize("engine", containers.ENGINES)
@pytest.mark.parametrize("simulated", [False, True])
def test_what_is_printed_does_what_run_does(tmp_path, engine, simulated):
    words = [engine, "run", "--rm", "image", "sh", "-c", 'echo it\'s "$HOME" \\ `x`']
    line = printed(words, simulated=simulated)
    assert line[:5] == ["cotenant", "run", "--gpu-memory", "4Gi", "--"]
    grant = SIMULATED if simulated else GRANT
    given = containers.with_grant(containers.find(words), grant)
    assert as_grant(tmp_path, line[5:], engine) == list(given[1:])
    assert containers.find(line[5:]) is None


def fake_engine(tmp_path):
    """Stands in for docker: it starts the rest in a mount namespace of its own, with the mounts and the
    environment that its options say, and a PID namespace, as a daemon would.
    """
    tool = tmp_path / "docker"
    tool.write_text(
        f"""#!{sys.executable}
import os, subprocess, sys
words, mounts, environ = sys.argv[2:], [], dict(PATH=os.environ["PATH"])
while words[0].startswith("-"):
    if words[0] in ("-v", "-e"):
        if words[0] == "-v":
            source, target, *mode = words[1].split(":")
            mounts.append((source, target, mode))
        else:
            name, _, value = words[1].partition("=")
            environ[name] = value
        words = words[2:]
    else:
        words = words[1:]
script = ["mount -t tmpfs none /run", "mkdir -p /run/cotenant/slot", "touch /run/cotenant/libcotenant.so"]
for source, target, mode in sorted(mounts, key=lambda mount: mount[1]):
    if source != target:
        script.append(f"mount --bind '{{source}}' '{{target}}'")
        if mode == ["ro"]:
            script.append(f"mount -o remount,bind,ro '{{target}}'")
script.append('exec env -i "$@"')
given = [f"{{name}}={{value}}" for name, value in environ.items()]
line = ["unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", " && ".join(script), "sh", *given, *words[1:]]
os.execvp(line[0], line)
"""
    )
    tool.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


@needs_root
def test_a_container_is_stopped_at_the_limit_of_its_grant(machine, tmp_path):
    run = ["docker", "run", "--rm", "-i", "image", sys.executable, PROGRAM, 1024, 1024]
    done = machine("run", "--gpu-memory", "2Gi", "--name", "train", "--", *run, env=fake_engine(tmp_path))
    assert done.stdout.split() == ["ok", "2"], done.stderr
    first, last = done.stderr.splitlines()
    assert first == "cotenant: GPU, slot and shim are added to `docker run` (--print shows how)"
    assert last.startswith("cotenant: train: peak 1.2Gi of 2Gi, 1 refused, ")


@needs_root
def test_root_in_a_container_cannot_raise_the_limit(machine, tmp_path):
    write = "echo x > /run/cotenant/slot/limits"
    run = ["docker", "run", "image", "sh", "-c", write]
    done = machine("run", "--gpu-memory", "2Gi", "--", *run, env=fake_engine(tmp_path))
    assert done.returncode != 0
    assert "Read-only" in done.stderr


@needs_root
def test_memory_of_a_container_is_its_grant_s(machine, tmp_path):
    """The process knows itself by another PID than the machine does."""
    run = ["docker", "run", "image", sys.executable, PROGRAM, 1024, "ready", "hold"]
    process = machine.start(
        "run", "--gpu-memory", "4Gi", "--name", "train", "--", *run, env=fake_engine(tmp_path)
    )
    assert [process.stdout.readline(), process.stdout.readline()] == ["ok\n", "ready\n"]
    (grant,) = machine.listing("ps")["grants"]
    assert (grant["used"], grant["enforcer"]) == (1280 << 20, "shim")
    card = machine.listing("gpus")["gpus"][0]
    assert (card["outside"], card["strangers"]) == (0, [])
    assert machine("stop", "train", "--timeout", "0s").returncode == 0
    process.wait(10)


def test_a_process_is_found_by_the_file_it_maps_not_by_what_it_says(tmp_path):
    file = tmp_path / "usage"
    file.write_bytes(b"x" * 4096)
    script = f"import mmap; f = open({str(file)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); print(1); input()"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "1\n"
        other = tmp_path / "another-name"
        other.hardlink_to(file)
        assert processes.mapping(str(other)) == [child.pid]
        assert not processes.maps(os.getpid(), str(file))
        assert processes.own_pid(child.pid) == child.pid
        child.stdin.close()
    assert processes.mapping(str(tmp_path / "missing")) == []


def test_print_starts_nothing(machine):
    done = machine("run", "--gpu-memory", "4Gi", "--print", "--", "docker", "run", "image")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "cotenant run --simulate 2x16GiB --gpu-memory 4Gi -- sh -c 'exec docker run "
    )
    assert "libcotenant.so" in done.stdout
    plain = machine("run", "--gpu-memory", "4Gi", "--print", "--", "python", "a b.py")
    assert plain.stdout == "cotenant run --simulate 2x16GiB --gpu-memory 4Gi -- python 'a b.py'\n"
    assert machine.rows() == []
