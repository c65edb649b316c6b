import pytest

from cotenant.core.errors import BadInput
from cotenant.local import names


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["/opt/bin/serve", "--port", "1"], "serve"),
        (["python", "-u", "train.py", "--lr", "1"], "train"),
        (["python3.11", "-m", "torch.distributed.run", "x.py"], "torch"),
        (["python", "-c", "print(1)"], "python"),
        (["sh", "/tmp/run me.sh"], "run-me"),
        (["bash"], "bash"),
        (["--"], "job"),
        (["päth"], "p-th"),
    ],
)
def test_a_job_is_called_like_its_command(command, name):
    assert names.from_command(command) == name
    assert names.check(name) == name


def test_a_taken_name_gets_a_number():
    assert names.unique("train", {"train", "train-2"}) == "train-3"
    assert names.unique("train", set()) == "train"


@pytest.mark.parametrize("name", ["", "a b", "-x", "ä", "x" * 64, "a\n", "a/b", "\x1b[31m"])
def test_bad_names_are_refused(name):
    with pytest.raises(BadInput, match="name"):
        names.check(name)
