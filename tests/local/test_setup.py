import os

import pytest

from cotenant.local import home
from cotenant.local.setup import NeedsRoot, setup


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make what all users share")
def test_it_is_made_for_all_and_comes_back_at_boot(tmp_path):
    rules = tmp_path / "tmpfiles.d"
    rules.mkdir()
    for _ in range(2):
        folder, runtime, rule = setup(tmp_path / "all", tmpfs=tmp_path, tmpfiles=rules)
    assert folder.stat().st_mode & 0o777 == runtime.stat().st_mode & 0o777 == 0o777
    assert f"d {runtime} 0777 root root -" in rule.read_text()
    assert home.prepare(folder, tmpfs=tmp_path).runtime == runtime


def test_others_are_told_who_can(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NeedsRoot, match="sudo cotenant setup"):
        setup(tmp_path / "all")
