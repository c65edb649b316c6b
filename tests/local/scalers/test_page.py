"""docs/up.md names every field, and its example is a file that `cotenant up` reads."""

import inspect
import re
from pathlib import Path

import msgspec

from cotenant.cli.up import command
from cotenant.local.scalers.file import read_file
from cotenant.local.scalers.workload import Ready, Workload

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "up.md").read_text()


def test_every_field_is_explained():
    names = {each.encode_name for kind in (Workload, Ready) for each in msgspec.structs.fields(kind)}
    assert {name for name in names if not re.search(rf"`[^`]*\b{name}\b", PAGE)} == set()


def test_its_example_and_that_of_help_are_read(tmp_path):
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    lines = inspect.cleandoc(command.help).splitlines()
    begins = lines.index("workloads:")
    taught = "\n".join(lines[begins : lines.index("", begins)])
    for text in (example, taught):
        (tmp_path / "w.yaml").write_text(text)
        (found,) = read_file(tmp_path / "w.yaml")
        assert (found.name, found.spec.replicas.max) == ("room-scene", 4)
        assert found.spec.policy().idle.threshold == 900
