"""Sends commands to an MPS control daemon and reads its replies.

The front end, `nvidia-cuda-mps-control` without arguments, reads commands from stdin. It exits with 0 also
when the daemon refuses one: an error is only text among the replies. Some faulty values are not even
refused, but taken for others. So values are checked before they are sent, every reply is parsed, and what
was set is read back.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cotenant.core.errors import BadInput, CotenantError
from cotenant.dialects.mps import check_mebibytes, check_percentage
from cotenant.hardware.mps.place import Place

PROGRAM = "nvidia-cuda-mps-control"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin"
"""Where NVIDIA's packages and container runtime have the programs of MPS."""
MOST_DEVICES = 32
"""Indexes of GPUs that the daemon keeps a default for. It forgets those of others without a word."""
TIMEOUT = 3.0
"""Seconds for one reply. A daemon that hangs, or waits for clients to end, answers nothing."""
_LARGEST_REPLY = 1 << 20
_MOST_SHOWN = 200
_PERCENTAGE = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?")
_MEMORY = re.compile(r"[0-9]{1,18}[MG]")


class MpsError(CotenantError):
    """The daemon refused a command, or said what is not understood."""


class NoProgram(MpsError):
    """MPS is not installed."""


class NoDaemon(MpsError):
    """No daemon runs at this place."""


class NoReply(MpsError):
    """The daemon does not answer in time."""


class UnknownCommand(MpsError):
    """The daemon is of a driver that does not have this command yet."""


def find_program(environ: Mapping[str, str], name: str = PROGRAM) -> Path:
    """Finds a program of MPS on PATH or where NVIDIA installs it."""
    found = shutil.which(name, path=":".join(filter(None, (environ.get("PATH"), PATH))))
    if found is None:
        raise NoProgram(
            f"{name} is not here: it comes with NVIDIA's driver (Debian: nvidia-cuda-mps, Ubuntu: "
            "nvidia-compute-utils); in a container, with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
    return Path(found)


@dataclass(frozen=True, slots=True)
class Control:
    """The front end of the daemon at one place."""

    program: Path
    place: Place
    timeout: float = TIMEOUT

    def servers(self) -> tuple[int, ...]:
        """Lists the daemon's servers, by pid."""
        return _pids(self.ask("get_server_list"))

    def clients(self, server: int) -> tuple[int, ...]:
        """Lists the processes that are connected to a server; none if it has ended or is starting."""
        try:
            return _pids(self.ask(f"get_client_list {_whole(server, 'server')}"))
        except NoServer:
            return ()

    def status(self, server: int) -> str | None:
        """Returns INITIALIZING, ACTIVE or FAULT; None if the server has ended or the daemon is too old."""
        try:
            return self.ask(f"get_server_status {_whole(server, 'server')}") or None
        except (NoServer, UnknownCommand):
            return None

    def percentage(self) -> float:
        """Returns the most active threads, in percent, that a client may ask for."""
        return _percentage(self.ask("get_default_active_thread_percentage"))

    def set_percentage(self, value: int) -> None:
        """Sets the most active threads of clients, in percent. It holds for servers that start later."""
        wanted = check_percentage(value)
        found = _percentage(self.ask(f"set_default_active_thread_percentage {wanted}"))
        if found != wanted:
            raise MpsError(f"active thread percentage: {wanted} was set, and MPS keeps {found:g}")

    def memory(self, device: int) -> str | None:
        """Returns the memory limit of a client process on a GPU, as the daemon shows it; None: no limit. From
        one gigabyte on it shows whole gigabytes, rounded down: `1536M` is shown as `1G`.
        """
        found = self.ask(f"get_default_device_pinned_mem_limit {_device(device)}")
        if found.startswith("No default pinned memory limit"):
            return None
        if found and not _MEMORY.fullmatch(found):
            raise MpsError(f"memory limit of device {device}: MPS says {found[:_MOST_SHOWN]!r}")
        return found or None

    def set_memory(self, device: int, mebibytes: int) -> None:
        """Sets the memory limit of each client process on a GPU. It holds for servers that start later."""
        wanted = check_mebibytes(mebibytes)
        self.ask(f"set_default_device_pinned_mem_limit {_device(device)} {wanted}M")
        found = self.memory(device)
        if not shows_memory(found, wanted):
            raise MpsError(
                f"memory limit of device {device}: {wanted}M was set, and MPS keeps {found or 'no limit'}"
            )

    def start_server(self, uid: int) -> None:
        """Starts a server for a user. Without it the first client does so."""
        self.ask(f"start_server -uid {_whole(uid, 'uid')}")

    def quit(self, seconds: int) -> None:
        """Ends the daemon; servers that still have clients are ended after `seconds`."""
        self._send(f"quit -t {_whole(seconds, 'seconds')}", seconds + self.timeout)

    def ask(self, command: str) -> str:
        """Sends one command and returns its reply. Errors that the daemon words are raised."""
        done = self._send(command, self.timeout)
        reply = done.stdout[:_LARGEST_REPLY].decode(errors="replace").strip()
        if done.returncode:
            words = reply or done.stderr[:_LARGEST_REPLY].decode(errors="replace").strip()
            if "Cannot find MPS control daemon" in words:
                raise NoDaemon(f"no MPS control daemon runs at {self.place.pipe}")
            raise MpsError(f"{command}: MPS says {words[:_MOST_SHOWN]!r}, exit code {done.returncode}")
        if reply.startswith("Unknown command"):
            raise UnknownCommand(f"{command}: MPS says {reply[:_MOST_SHOWN]!r}: its driver is too old")
        if re.fullmatch(r"Server( [0-9]+)? not found!?", reply):
            raise NoServer(f"{command}: MPS says {reply!r}")
        if re.match(r"Invalid|Insufficient|Not enough|A (user|server) |Internal error", reply):
            raise MpsError(f"{command}: MPS says {reply[:_MOST_SHOWN]!r}")
        return reply

    def _send(self, command: str, timeout: float) -> subprocess.CompletedProcess[bytes]:
        if not command.isascii() or not command.isprintable():
            raise BadInput(f"{command[:_MOST_SHOWN]!a} is not one command of MPS")
        try:
            return subprocess.run(
                [self.program],
                input=f"{command}\n".encode(),
                capture_output=True,
                timeout=timeout,
                check=False,
                env={"PATH": PATH, **self.place.environment()},
            )
        except subprocess.TimeoutExpired:
            raise NoReply(
                f"the MPS control daemon at {self.place.pipe} did not answer {command!r} in {timeout:g} s"
            ) from None
        except OSError as error:
            raise NoProgram(f"{self.program} cannot be run: {error.strerror}") from None


class NoServer(MpsError):
    """The server has ended."""


def shows_memory(found: str | None, mebibytes: int) -> bool:
    """Whether what the daemon shows can be this limit."""
    return found in (f"{mebibytes}M", f"{mebibytes // 1024}G")


def _device(value: object) -> int:
    if _whole(value, "device") >= MOST_DEVICES:
        raise BadInput(f"device: {value!r}: MPS keeps a limit for {MOST_DEVICES} GPUs, counted from 0")
    return _whole(value, "device")


def _whole(value: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        raise BadInput(f"{field}: {value!r:.100} is not a whole number from 0")
    return value


def _percentage(reply: str) -> float:
    if not _PERCENTAGE.fullmatch(reply):
        raise MpsError(f"active thread percentage: MPS says {reply[:_MOST_SHOWN]!r}")
    return float(reply)


def _pids(reply: str) -> tuple[int, ...]:
    words = reply.split()
    if not all(word.isdecimal() and word.isascii() and len(word) < 11 for word in words):
        raise MpsError(f"a list of pids was asked for: MPS says {reply[:_MOST_SHOWN]!r}")
    return tuple(map(int, words))
