"""Every command of docs/simulate-placement.md works as it stands, on a small cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pages
import pytest
from simulate.placement.dumps import node, part, pod, write

TYPED = [each.text for each in pages.commands("simulate-placement") if "simulate placement --" in each.text]
NODES = "".join(
    f"{line.strip()}\n"
    for line in pages.read("simulate-placement").splitlines()
    if line.startswith(("    name,", "    a1,", "    d1,"))
)
PODS = "name,cpu,memory,gpus,gpu_memory,model\nsmall,2,8Gi,1,4Gi,\nlarge,8,64Gi,2,,A100-80GB\n"


@pytest.mark.parametrize("command", TYPED)
def test_a_command_of_the_page_prints_its_tables(command: str, tmp_path: Path) -> None:
    runs = pod("runs", part(20), workload="team/deployment/web")
    write(tmp_path / "cluster.json", [node("a", pods=[(runs, [(0, 20)])]), node("b", (16, 16))])
    figure = {"workload": "team/deployment/web", "container": "c0", "advised": 2**33, "gpus": 1}
    (tmp_path / "advice.json").write_text(json.dumps({"advice": [figure]}))
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    done = pages.run_cotenant(command, tmp_path)
    assert done.returncode == 0, done.stderr
    changes = sum(each in command for each in ("--add", "--advice"))
    policies = 3 if "--policy" in command else 1
    rows = done.stdout.partition("POLICY")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(rows) == policies * (1 + bool(changes))


def test_the_page_has_commands_for_each_kind_of_question() -> None:
    assert len(TYPED) >= 5
    assert NODES.count("\n") == 3
