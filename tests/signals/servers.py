"""Starts real servers on loopback and free ports: Redis, RabbitMQ, NATS, Prometheus.

They come from `scripts/servers.py`. Each keeps its data in a folder of its own and can be stopped and started again
on the same port, with or without its data.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import servers as programs

STARTS_WITHIN = 100.0


def free_ports(count: int) -> list[int]:
    """Finds ports that are free now. All are held until the last is found, so that they differ."""
    held = []
    for _ in range(count):
        # An address of its own pool: the kernel gives ports to outgoing connections from the upper half.
        each = socket.socket()
        each.bind(("127.0.0.1", 0))
        held.append(each)
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def program(name: str) -> programs.Program:
    """Returns a server's program, or skips the test with the reason why this machine has none."""
    try:
        return programs.find(name)
    except programs.CannotGet as missing:
        pytest.skip(str(missing))


class Server:
    """A process that listens on a port of loopback."""

    name = ""

    def __init__(self, folder: Path, ports: int = 1) -> None:
        self.program = program(self.name)
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ports = free_ports(ports)
        self.port = self.ports[0]
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env={**os.environ, **self.program.environment, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + STARTS_WITHIN
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(
                    f"{self.name} does not start:\n{(self.folder / 'log').read_text()[-4000:]}"
                )
            time.sleep(0.02)

    def answers(self) -> bool:
        return all(self._listens(port) for port in self.ports)

    @staticmethod
    def _listens(port: int) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def stop(self) -> None:
        """Kills the process and all that it started: a server that goes without a word."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def pause(self) -> None:
        """Stops the process where it is: connections stay, and nothing is answered."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)


class Redis(Server):
    """Redis; `options` are lines of its configuration."""

    name = "redis"

    def __init__(self, folder: Path, *options: str, plain: bool = True) -> None:
        super().__init__(folder)
        self.options = options
        self.listening = f"port {self.port}" if plain else f"port 0\ntls-port {self.port}"

    def command(self) -> list[str]:
        lines = ["bind 127.0.0.1", self.listening, f"dir {self.folder}", 'save ""', *self.options]
        (self.folder / "redis.conf").write_text("\n".join(lines) + "\n")
        return [str(self.program.path), str(self.folder / "redis.conf")]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"


class Sentinel(Redis):
    """A Sentinel that watches one master, named `main`."""

    def __init__(self, folder: Path, master_port: int, *options: str) -> None:
        super().__init__(folder, f"sentinel monitor main 127.0.0.1 {master_port} 1", *options)

    def command(self) -> list[str]:
        return [*super().command(), "--sentinel"]


class RabbitMQ(Server):
    """RabbitMQ with its management API (`ports[1]`), user and password `guest`, and statistics every second."""

    name = "rabbitmq"

    def __init__(self, folder: Path, *lines: str) -> None:
        super().__init__(folder, ports=2)
        self.lines = lines
        self.epmd_port, self.distribution_port = free_ports(2)

    def start(self) -> None:
        # Erlang's port mapper would outlive the server as a daemon: this one is a child of the test.
        epmd = Path(self.program.environment["PATH"].split(":")[0]) / "epmd"
        self.epmd = subprocess.Popen(
            [epmd, "-port", str(self.epmd_port), "-address", "127.0.0.1"],
            env={**os.environ, **self.program.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            super().start()
        except BaseException:
            self.epmd.kill()
            raise

    def command(self) -> list[str]:
        lines = [
            f"listeners.tcp.default = 127.0.0.1:{self.port}",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self.ports[1]}",
            "collect_statistics_interval = 200",
            *(
                f"management.sample_retention_policies.{each} = 1"
                for each in ("global.minute", "basic.minute", "detailed.10")
            ),
            "log.console = true",
            *self.lines,
        ]
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "enabled_plugins").write_text("[rabbitmq_management].\n")
        return [str(self.program.path)]

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def answers(self) -> bool:
        return super().answers() and "Server startup complete" in (self.folder / "log").read_text()

    def stop(self) -> None:
        super().stop()
        self.epmd.kill()
        self.epmd.wait()

    @property
    def amqp(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def management(self) -> str:
        return f"http://127.0.0.1:{self.ports[1]}"


class Nats(Server):
    """NATS with JetStream; `lines` are added to its configuration."""

    name = "nats"

    def __init__(self, folder: Path, *lines: str) -> None:
        super().__init__(folder)
        self.lines = lines

    def command(self) -> list[str]:
        lines = [
            f'listen: "127.0.0.1:{self.port}"',
            f'jetstream {{ store_dir: "{self.folder}" }}',
            *self.lines,
        ]
        (self.folder / "nats.conf").write_text("\n".join(lines) + "\n")
        return [str(self.program.path), "-c", str(self.folder / "nats.conf")]

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"


class Prometheus(Server):
    """Prometheus that scrapes one exporter on loopback every 200 ms."""

    name = "prometheus"

    def __init__(self, folder: Path, exporter_port: int) -> None:
        super().__init__(folder)
        self.exporter_port = exporter_port

    def command(self) -> list[str]:
        (self.folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
            "scrape_configs:\n"
            "- job_name: queue\n"
            f"  static_configs: [{{targets: ['127.0.0.1:{self.exporter_port}']}}]\n"
        )
        return [
            str(self.program.path),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"
