"""Whether the shim can be loaded is read from the program itself."""

import struct
import sys

import pytest

from cotenant.core.errors import CommandNotFound, NotExecutable
from cotenant.local import program


def elf(interpreter, *, bits=64):
    """The least that counts: a header, and a segment that names the loader, if there is one."""
    name = b"" if interpreter is None else interpreter.encode() + b"\0"
    kind = 1 if interpreter is None else 3
    segment = struct.pack("<IIQQQQQQ", kind, 4, 120, 0, 0, len(name), len(name), 1)
    identity = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1, 1]) + b"\0" * 9
    return (
        identity + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0) + segment + name
    )


@pytest.fixture
def compiled(tmp_path):
    folder = tmp_path / "programs"
    folder.mkdir()
    kinds = {
        "glibc": elf("/lib64/ld-linux-x86-64.so.2"),
        "musl": elf("/lib/ld-musl-x86_64.so.1"),
        "static": elf(None),
        "old": elf("/lib/ld-linux.so.2", bits=32),
    }
    for name, content in kinds.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)
    return folder


def test_this_very_interpreter_takes_the_shim():
    found = program.find(sys.executable, {})
    assert (found.obstacle, found.preload) == (None, True)


def test_a_32_bit_program_cannot_take_it(compiled):
    found = program.find(str(compiled / "old"), {})
    assert "32-bit" in found.obstacle
    assert not found.preload


def test_a_glibc_program_takes_the_shim(compiled):
    found = program.find(str(compiled / "glibc"), {})
    assert (found.obstacle, found.preload) == (None, True)


def test_a_musl_program_must_not_be_given_it(compiled):
    found = program.find(str(compiled / "musl"), {})
    assert "musl" in found.obstacle
    assert not found.preload


def test_a_static_program_cannot_take_it(compiled):
    found = program.find(str(compiled / "static"), {})
    assert "statically" in found.obstacle


def test_a_program_with_other_rights_drops_it(compiled, tmp_path):
    copy = tmp_path / "other"
    copy.write_bytes((compiled / "glibc").read_bytes())
    copy.chmod(0o4755)
    assert "rights" in program.find(str(copy), {}).obstacle


@pytest.mark.parametrize(
    "first", ["#!{}\n", "#! {} -x\n", "#!/usr/bin/env musl\n", "#!/usr/bin/env -S A=1 musl -v\n"]
)
def test_a_script_is_what_its_interpreter_is(compiled, tmp_path, first):
    script = tmp_path / "script"
    script.write_text(first.format(compiled / "musl"))
    script.chmod(0o755)
    assert "musl" in program.find(str(script), {"PATH": str(compiled)}).obstacle


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02" + b"\xff" * 100, b"#!", b"echo plain\n"])
def test_what_is_no_program_does_no_harm(tmp_path, content):
    strange = tmp_path / "strange"
    strange.write_bytes(content)
    strange.chmod(0o755)
    program.find(str(strange), {})


def test_a_loop_of_scripts_ends(tmp_path):
    script = tmp_path / "loop"
    script.write_text(f"#!{script}\n")
    script.chmod(0o755)
    program.find(str(script), {})


def test_it_is_found_in_the_path_in_order(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "two" / "tool").chmod(0o755)
    path = f"{tmp_path}/none:{tmp_path}/one:{tmp_path}/two"
    assert program.find("tool", {"PATH": path}).path == f"{tmp_path}/two/tool"
    with pytest.raises(NotExecutable, match="one/tool"):
        program.find("tool", {"PATH": f"{tmp_path}/one"})
    with pytest.raises(CommandNotFound, match="PATH"):
        program.find("tool", {"PATH": f"{tmp_path}/none"})


def test_a_folder_is_not_executable(tmp_path):
    with pytest.raises(NotExecutable):
        program.find(str(tmp_path), {})


def test_an_empty_command_is_not_found():
    with pytest.raises(CommandNotFound, match="empty"):
        program.find("", {})
