"""What is found of the libraries that Cotenant needs, with this machine's own loader."""

import os
import platform
import shutil
import socket
import struct
from pathlib import Path

import pytest

from cotenant.hardware import libraries
from cotenant.hardware.enforcers.shim import LIBRARY as SHIM
from cotenant.local.doctor.libraries import CUDA, NVML, look


class TestLibraries:
    @pytest.fixture
    def cards(self):
        return {"LD_LIBRARY_PATH": str(libraries.standin_folder())}

    @pytest.fixture
    def look_at(self, cards, tmp_path):
        def look_at(shim=None, cards=cards, **options):
            given = {"system_preloads": tmp_path / "none", **options}
            environ = {**os.environ, **given.pop("environ", {})}
            return look(shim or libraries.shim(), environ, cards, **given)

        return look_at

    def problem(self, seen, name):
        return next(library.problem for library in seen.libraries if library.name == name)

    def test_all_is_well(self, look_at):
        seen = look_at()
        assert [library.problem for library in seen.libraries] == [None, None, None]
        assert seen.musl is None
        assert seen.preloads == ()

    def test_no_driver_at_all(self, look_at, tmp_path):
        seen = look_at(cards={"LD_LIBRARY_PATH": str(tmp_path)})
        if Path("/proc/driver/nvidia/version").exists():
            pytest.skip("this machine has a driver")
        assert self.problem(seen, CUDA) == self.problem(seen, NVML) == "the loader does not find it"
        assert all(library.missing for library in seen.libraries if library.name != SHIM)

    def test_a_device_file_without_a_driver_behind_it_is_no_driver(self, look_at, tmp_path):
        """libcuda makes /dev/nvidiactl also where there is no kernel module, and leaves it there."""
        dead, alive = tmp_path / "nvidiactl", tmp_path / "version"
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(dead))  # to open it answers ENXIO, as a device file without a driver does
        alive.write_text("NVRM version")
        assert not look_at(cards={}, driver=[dead]).driver_loaded
        assert look_at(cards={}, driver=[dead, alive]).driver_loaded

    def test_a_driver_without_nvml(self, look_at, tmp_path):
        shutil.copy(libraries.standin_cuda(), tmp_path / CUDA)
        (tmp_path / NVML).write_text("a package that went wrong")
        seen = look_at(cards={"LD_LIBRARY_PATH": str(tmp_path)})
        assert self.problem(seen, CUDA) is None
        assert "cannot be loaded" in self.problem(seen, NVML)

    def test_a_library_that_is_another(self, look_at, tmp_path):
        shutil.copy(libraries.standin_nvml(), tmp_path / CUDA)
        assert "lacks cuInit" in self.problem(look_at(cards={"LD_LIBRARY_PATH": str(tmp_path)}), CUDA)

    def test_no_shim(self, look_at, tmp_path):
        assert "does not exist" in self.problem(look_at(tmp_path / "libcotenant.so"), SHIM)

    def test_a_shim_that_is_no_library(self, look_at, tmp_path):
        (tmp_path / SHIM).write_text("#!/bin/sh")
        assert "is not a library" in self.problem(look_at(tmp_path / SHIM), SHIM)

    def test_a_shim_for_another_machine(self, look_at, tmp_path):
        data = bytearray(libraries.shim().read_bytes())
        data[18:20] = struct.pack("<H", 183 if platform.machine() == "x86_64" else 62)
        (tmp_path / SHIM).write_bytes(data)
        assert "is not made for" in self.problem(look_at(tmp_path / SHIM), SHIM)

    def test_a_shim_that_was_cut_short(self, look_at, tmp_path):
        (tmp_path / SHIM).write_bytes(libraries.shim().read_bytes()[:4096])
        assert "cannot be loaded" in self.problem(look_at(tmp_path / SHIM), SHIM)

    def test_a_shim_of_another_kind(self, look_at, tmp_path):
        shutil.copy(libraries.standin_nvml(), tmp_path / SHIM)
        assert "lacks cuGetProcAddress_v2" in self.problem(look_at(tmp_path / SHIM), SHIM)

    def test_a_musl_system(self, look_at, tmp_path):
        """Told by the loader that the system's shell names."""
        name = b"/lib/ld-musl-x86_64.so.1\0"
        head = (
            b"\x7fELF\x02\x01\x01"
            + bytes(9)
            + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
        )
        entry = struct.pack("<IIQQQQQQ", 3, 4, 120, 120, 120, len(name), len(name), 1)
        shell = tmp_path / "sh"
        shell.write_bytes(head + entry + name)
        shell.chmod(0o755)
        assert look_at(shell=str(shell)).musl == f"{shell} is made for musl, not glibc"

    def test_others_that_preload(self, look_at, tmp_path):
        hooking, harmless = tmp_path / "libvgpu.so", tmp_path / "libjemalloc.so"
        hooking.write_bytes(b"\x7fELF...\0cuMemAlloc_v2\0...")
        harmless.write_bytes(b"\x7fELF...\0malloc\0...")
        preloads = tmp_path / "ld.so.preload"
        preloads.write_text(f"# all programs\n{hooking} {harmless}\n")
        seen = look_at(
            environ={"LD_PRELOAD": f"{tmp_path}/gone.so:{harmless} libtools.so"}, system_preloads=preloads
        )
        assert [(each.path, each.named_in) for each in seen.preloads] == [
            (f"{tmp_path}/gone.so", "LD_PRELOAD"),
            (str(hooking), str(preloads)),
        ]
