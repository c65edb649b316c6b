"""Every command of docs/simulate-scaling.md works as it stands, on short traces."""

from __future__ import annotations

import gzip
from pathlib import Path

import pages
import pytest

TYPED = [each.text for each in pages.commands("simulate-scaling") if "--trace" in each.text]
REQUESTS = "timestamp,service_seconds\n" + "".join(f"{at * 10},{0.5 + at % 3}\n" for at in range(240))
TOKENS = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:{at // 60:02}:{at % 60:02}.0000000,{100 + at},{at % 50}\n" for at in range(0, 600, 5)
)


@pytest.mark.parametrize("command", TYPED)
def test_a_command_of_the_page_prints_its_table(command: str, tmp_path: Path) -> None:
    (tmp_path / "requests.csv").write_text(REQUESTS)
    (tmp_path / "requests.csv.gz").write_bytes(gzip.compress(REQUESTS.encode()))
    (tmp_path / "conversation.csv").write_text(TOKENS)
    done = pages.run_cotenant(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ours" in done.stdout
    assert ("\nMEAN" in done.stdout) == ("," in command.partition("--service")[2])


def test_the_page_has_commands_for_one_row_and_for_a_table() -> None:
    assert len(TYPED) >= 4
