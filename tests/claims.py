"""Lets several runs of pytest share their files of tests: each takes the next one that nobody has taken.

By file, since fixtures of a file are expensive: a server, an installed chart. A file is taken by creating an empty
file of its name, which only one process can.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest


class Claims:
    """The files of tests that this run has taken, in a folder that all runs share."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.ours: dict[Path, bool] = {}

    def take(self, file: Path) -> bool:
        """Reports whether the file is this run's."""
        if file not in self.ours:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                (self.folder / quote(f"{self.kind}:{file}", safe="")).touch(exist_ok=False)
            except FileExistsError:
                self.ours[file] = False
            else:
                self.ours[file] = True
        return self.ours[file]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Passes over a test whose file another run has taken. Fixtures that the test before it left for it
        are torn down, as they would be after it.
        """
        if self.take(item.path):
            return None
        item.session._setupstate.teardown_exact(nextitem)
        return True
