"""What the compiled library needs and shows, read from the file itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cotenant.hardware import libraries, slots

ROOT = Path(__file__).resolve().parents[2]


def needed_versions(path: Path) -> set[tuple[int, ...]]:
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_r")
        names = {aux.name for _, versions in section.iter_versions() for aux in versions}
    return {tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in names}


def needed_libraries(path: Path) -> set[str]:
    with path.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        return {tag.needed for tag in tags}


def exported(path: Path) -> set[str]:
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return {
            s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] != "STB_LOCAL"
        }


def all_libraries() -> list[Path]:
    folder = libraries.standin_folder()
    return [libraries.shim(), folder / "libcuda.so.1", folder / "libnvidia-ml.so.1"]


@pytest.mark.parametrize("path", all_libraries(), ids=lambda path: path.name)
def test_no_symbol_above_glibc_2_17_is_needed(path: Path):
    assert max(needed_versions(path)) <= (2, 17)


def test_nothing_but_libc_is_needed():
    """Whatever else it needed could be missing in an image, and then no program would start there."""
    assert needed_libraries(libraries.shim()) == {"libc.so.6"}


def test_only_hooks_are_exported():
    table = (ROOT / "csrc" / "shim" / "hooks.h").read_text()
    hooks = set(re.findall(r"HOOK\(((?:cu|nvml)\w+), ", table))
    assert exported(libraries.shim()) == hooks | {"dlsym", "dlopen"}


def test_it_compiles_for_arm64(tmp_path: Path):
    subprocess.run(
        [sys.executable, ROOT / "csrc" / "build.py", "--machine", "aarch64", "--out", tmp_path],
        check=True,
        timeout=120,
    )
    with (tmp_path / "libcotenant.so").open("rb") as file:
        assert ELFFile(file)["e_machine"] == "EM_AARCH64"
    assert max(needed_versions(tmp_path / "libcotenant.so")) <= (2, 17)
    assert needed_libraries(tmp_path / "libcotenant.so") == {"libc.so.6"}
    assert exported(tmp_path / "libcotenant.so") == exported(libraries.shim())


def test_python_and_c_agree_on_the_slot(tmp_path: Path):
    """Compile the header and print what Python assumes."""
    source = tmp_path / "layout.c"
    source.write_text("""
        #include <stddef.h>
        #include <stdio.h>
        #include "cotenant_slot.h"
        int main(void) {
            printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu %d %d %d", sizeof(struct cot_limits), sizeof(struct cot_usage),
                   offsetof(struct cot_limits, card), offsetof(struct cot_card_limit, bytes), sizeof(struct cot_process),
                   offsetof(struct cot_usage, closed), offsetof(struct cot_usage, peak),
                   offsetof(struct cot_process, used), offsetof(struct cot_process, unnoted), COT_ABI, COT_CARDS, COT_PROCESSES);
        }""")
    program = tmp_path / "layout"
    include = f"-I{ROOT / 'csrc' / 'include'}"
    subprocess.run([sys.executable, "-m", "ziglang", "cc", include, "-o", program, source], check=True)
    told = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert [int(number) for number in told] == [
        slots._LIMITS_SIZE,
        slots._USAGE_SIZE,
        slots._LIMITS_HEAD,
        slots._LIMIT_BYTES,
        slots._PROCESS.size,
        slots._CLOSED,
        slots._PEAK_AT,
        16 * 8,
        slots._UNNOTED,
        slots.ABI,
        slots.CARDS,
        slots.PROCESSES,
    ]
