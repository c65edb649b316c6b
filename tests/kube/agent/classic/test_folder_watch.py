"""A change in a folder wakes whoever waits for it: on a real file system."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.kube.agent.classic.folder_watch import watching

pytestmark = pytest.mark.asyncio


def replace_file(folder: Path) -> None:
    (folder / "new").write_text("")
    (folder / "new").replace(folder / "there")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "more").write_text(""),
        lambda folder: (folder / "there").unlink(),
        replace_file,
        lambda folder: (folder / "there").rename(folder.with_name("elsewhere")),
    ],
    ids=["created", "deleted", "replaced", "moved away"],
)
async def test_each_change_of_the_entries_wakes(tmp_path: Path, change: Callable[[Path], object]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "there").write_text("")
    changed = asyncio.Event()
    with watching(folder, changed) as told:
        assert told
        await asyncio.sleep(0.02)
        assert not changed.is_set()
        change(folder)
        async with asyncio.timeout(5):
            await changed.wait()
        changed.clear()
        await asyncio.sleep(0.02)
        assert not changed.is_set(), "what was read is read once"


async def test_it_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with watching(tmp_path, asyncio.Event()) as told:
            assert told
    assert len(os.listdir("/proc/self/fd")) == before


async def test_it_says_so_where_it_cannot_watch(tmp_path: Path) -> None:
    with watching(tmp_path / "none", asyncio.Event()) as told:
        assert not told
