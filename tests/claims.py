"""Lets several runs of pytest share their files of tests: each takes the next one that nobody has taken.

By file, since fixtures of a file are expensive: a server, an installed chart. A file is taken by creating an empty
file of its name, which only one process can. Only what is taken is collected, since to import all files costs 20 s of CPU
time in a new clone, and every run would do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from _pytest.runner import collect_one_node


class Claims:
    """Collects and runs the files of tests that this run takes, from a folder of claims that all runs share."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.others_took_some = False
        self._files: list[pytest.File] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collects the folders that are asked for, and no file of them."""
        session.perform_collect(genitems=False)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item | pytest.Collector]) -> None:
        """Is given the folders first, and then the tests of each file. Others shall see tests only. Fixtures of a
        folder are known if it is collected before pytest says that this is finished.
        """
        if self._files is None:
            self._files = list(files_of(items))
            items.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs each test with the one that follows it, by which pytest knows which fixtures are still needed. So the
        next file is taken before the last test of this one.
        """
        items = self._items(session)
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def _items(self, session: pytest.Session) -> Iterator[pytest.Item]:
        """Yields the tests of each file as it is taken."""
        collected = 0
        for file in self._files or ():
            if self.take(file.path):
                items = list(session.genitems(file))
                session.config.hook.pytest_collection_modifyitems(
                    session=session, config=session.config, items=items
                )
                collected += len(items)
                yield from items
        session.testscollected = collected

    def take(self, file: Path) -> bool:
        """Reports whether the file is this run's."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            (self.folder / quote(f"{self.kind}:{file}", safe="")).touch(exist_ok=False)
        except FileExistsError:
            self.others_took_some = True
            return False
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Nothing is wrong if the others were faster."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.others_took_some:
            session.exitstatus = pytest.ExitCode.OK


def files_of(nodes: Iterable[pytest.Item | pytest.Collector]) -> Iterator[pytest.File]:
    """Yields the files of tests below these folders; none of them is imported yet."""
    for node in nodes:
        if isinstance(node, pytest.File):
            yield node
        elif isinstance(node, pytest.Collector):
            report = collect_one_node(node)
            node.ihook.pytest_collectreport(report=report)
            yield from files_of(report.result)
