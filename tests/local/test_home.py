import os

import pytest

from cotenant.core.errors import LedgerUnusable
from cotenant.local import home


def test_the_named_folder_wins(tmp_path):
    assert home.choose({"COTENANT_HOME": str(tmp_path)}) == tmp_path


def test_the_folder_for_all_is_taken_if_it_is_there(tmp_path):
    assert home.choose({}, for_all=tmp_path) == tmp_path


def test_else_everybody_has_a_folder_of_their_own(tmp_path):
    assert home.choose({"XDG_STATE_HOME": "/x"}, for_all=tmp_path / "none") == home.Path("/x/cotenant")


def test_slots_are_on_tmpfs_and_private(tmp_path):
    place = home.prepare(tmp_path / "home", tmpfs=tmp_path)
    assert place.slots.parent.parent == tmp_path
    assert place.runtime.stat().st_mode & 0o777 == 0o700
    assert not place.shared


def test_without_tmpfs_slots_are_in_the_home(tmp_path):
    place = home.prepare(tmp_path / "home", tmpfs=tmp_path / "none")
    assert place.slots == tmp_path / "home" / "run" / "slots"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder that belongs to somebody else")
def test_a_folder_that_somebody_else_put_on_tmpfs_is_not_used(tmp_path):
    base = tmp_path / "home"
    theirs = tmp_path / home.runtime_name(base, os.getuid())
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    assert home.prepare(base, tmpfs=tmp_path).runtime == base / "run"


def test_a_folder_for_all_is_made_for_all(tmp_path):
    base = tmp_path / "home"
    base.mkdir()
    base.chmod(0o777)
    place = home.prepare(base, "2x16GiB", tmpfs=tmp_path)
    assert place.shared
    for folder in (place.folder, place.runtime, place.slots):
        assert folder.stat().st_mode & 0o777 == 0o777


def test_simulated_cards_have_a_home_of_their_own(tmp_path):
    place = home.prepare(tmp_path, "2xA100-80GB,1xT4", tmpfs=tmp_path)
    assert place.folder.parent == tmp_path / "simulated"
    assert place.folder != home.prepare(tmp_path, "2xA100-80GB-1xT4", tmpfs=tmp_path).folder


def test_two_descriptions_never_share_a_folder():
    specs = ["2x16GiB", "2x16GiB,", "1xA100/3g.40gb+2g.20gb", "1xA100-3g.40gb-2g.20gb", "a" * 70, "a" * 71]
    assert len({home.slug(spec) for spec in specs}) == len(specs)
    assert all("/" not in home.slug(spec) for spec in specs)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnusable, match="COTENANT_HOME"):
        home.prepare(tmp_path / "file" / "home")
