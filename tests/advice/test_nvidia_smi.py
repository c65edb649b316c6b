"""Logs of nvidia-smi, in the forms that its options give."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.advice.csv_file import read_csv
from cotenant.core.errors import BadInput

MIB = 1 << 20
UUID = "GPU-5d0b0a9c-9f5f-4b5e-8f6c-0d8d5d3c8d11"
NO_NAME = "process_name: not known where nvidia-smi ran: run it on the host, as root"
HEADER = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"


def row(
    second: int, pid: int = 71, name: str = "/usr/bin/python3", size: str = "512 MiB", gpu: str = UUID
) -> str:
    return f"2026/01/31 12:00:{second:02d}.123, {gpu}, {pid}, {name}, {size}\n"


def read(tmp_path: Path, text: str):
    path = tmp_path / "log.csv"
    path.write_text(text)
    return read_csv(str(path))


@pytest.mark.parametrize(
    "text",
    [
        HEADER + row(0) + row(15, size="700 MiB"),
        row(0) + row(15, size="700 MiB"),
        HEADER + row(0, size="512") + row(15, size="700"),
        HEADER + row(0) + HEADER + row(15, size="700 MiB"),
        HEADER.replace("used_gpu_memory", "used_memory") + row(0) + row(15, size="700 MiB"),
    ],
)
def test_with_and_without_header_and_units(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    (group,) = found.groups
    assert group.owner.workload == "python3"
    assert group.instances == ("71",)
    assert group.tracks[0].gpu == UUID
    assert group.tracks[0].peak == 700 * MIB
    assert found.starts_are_seen
    assert found.rejected == ()


def test_columns_in_another_order(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        f"pid, name, used_memory [MiB], timestamp, gpu_uuid\n5, a, 3 MiB, 2026/01/31 12:00:00, {UUID}\n",
    )
    assert found.groups[0].tracks[0].peak == 3 * MIB


def test_processes_of_one_program_are_its_instances_and_a_process_may_have_several_gpus(
    tmp_path: Path,
) -> None:
    other = UUID.replace("11", "22")
    found = read(
        tmp_path, HEADER + row(0, 1) + row(0, 2, size="600 MiB") + row(0, 2, size="900 MiB", gpu=other)
    )
    (group,) = found.groups
    assert group.instances == ("1", "2")
    assert group.gpus == 2


def test_a_name_with_commas_is_put_together_again(tmp_path: Path) -> None:
    found = read(tmp_path, row(0, name="C:\\Program Files\\a, b\\serve.exe"))
    assert found.groups[0].owner.workload == "serve.exe"


@pytest.mark.parametrize("name", ["/srv/serve", "/srv/a, b/serve"])
@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("timestamp, gpu_uuid, gpu_name, pid, process_name, used_memory", "{at}, {gpu}, A100, 7, {name}, 3"),
        ("timestamp, gpu_name, gpu_uuid, pid, process_name, used_memory", "{at}, A100, {gpu}, 7, {name}, 3"),
        ("timestamp, gpu_uuid, pid, used_memory, process_name", "{at}, {gpu}, 7, 3, {name}"),
    ],
)
def test_further_columns_and_other_orders_with_any_name(
    tmp_path: Path, header: str, form: str, name: str
) -> None:
    line = form.format(at="2026/01/31 12:00:00.000", gpu=UUID, name=name)
    found = read(tmp_path, f"{header}\n{line}\n")
    assert found.rejected == ()
    (group,) = found.groups
    assert (group.owner.workload, group.instances) == ("serve", ("7",))
    assert (group.tracks[0].gpu, group.tracks[0].peak) == (UUID, 3 * MIB)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (row(1, size="[N/A]"), "used_memory: the driver did not report it"),
        (row(1, size="[Insufficient Permissions]"), "used_memory: the driver did not report it"),
        (row(1, size="lots"), "used_memory: not a number of MiB"),
        (row(1, size="9" * 30), "used_memory: more than any GPU has"),
        (row(1).replace("2026/01/31", "31 Jan"), "timestamp: not a time"),
        (row(1, name=" "), "pid or process_name: is missing"),
        (row(1, name="[Not Found]"), NO_NAME),
        (row(1, name="[Insufficient Permissions]"), NO_NAME),
        (row(1, name="-"), NO_NAME),
        ("No running processes found\n", "not 5 fields"),
    ],
)
def test_rows_without_a_figure_are_counted(tmp_path: Path, bad: str, why: str) -> None:
    found = read(tmp_path, HEADER + row(0) + bad)
    assert [(each.why, each.rows, each.line) for each in found.rejected] == [(why, 1, 3)]
    with pytest.raises(BadInput, match=r"no row of .* can be used"):
        read(tmp_path, HEADER + bad)


@pytest.mark.parametrize(
    "header",
    [
        "timestamp, name, uuid, memory.used [MiB]",
        "pid, process_name, used_gpu_memory [MiB]",
        "timestamp, gpu_bus_id, pid, process_name, used_gpu_memory [MiB]",
    ],
)
def test_the_log_of_another_query_is_told_which_one_is_needed(tmp_path: Path, header: str) -> None:
    with pytest.raises(
        BadInput, match="--query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_memory"
    ):
        read(tmp_path, f"{header}\n1\n")
    with pytest.raises(BadInput) as error:
        read(tmp_path, "time,name,value\n1,a,2\n")
    assert "nvidia-smi" not in str(error.value)
