"""The alert rules: Prometheus' own tool reads them, each fires where it must and nowhere else, each is explained."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from charts.monitoring import RULES, rules
from signals.servers import program

from charts import monitoring

HERE = Path(__file__).parent
CASES = HERE / "rules_test.yaml"
PAGE = monitoring.ROOT / "docs" / "alerts.md"


def promtool(*arguments: object) -> str:
    found = program("prometheus")
    tool = found.path.with_name("promtool")
    if not tool.exists():
        pytest.skip(f"{tool} is not here, beside prometheus")
    done = subprocess.run(
        [str(tool), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_reads_the_rules():
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", RULES)


def test_each_alert_fires_where_it_must_and_nowhere_else(tmp_path: Path):
    for file in (RULES, CASES):
        shutil.copy(file, tmp_path)
    assert "SUCCESS" in promtool("test", "rules", tmp_path / CASES.name)


def test_a_rule_that_never_fires_is_noticed(tmp_path: Path):
    """The tool is really asked."""
    shutil.copy(CASES, tmp_path)
    broken = RULES.read_text().replace("cotenant_gpu_healthy) == 0", "cotenant_gpu_healthy) == 2")
    (tmp_path / RULES.name).write_text(broken)
    with pytest.raises(AssertionError, match="CotenantGpuUnhealthy"):
        promtool("test", "rules", tmp_path / CASES.name)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    fires: dict[str, set[bool]] = {}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for each in case["alert_rule_test"]:
            fires.setdefault(each["alertname"], set()).add(bool(each["exp_alerts"]))
    assert fires == {rule["alert"]: {True, False} for rule in rules()}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_alert_says_what_it_means_and_where_its_runbook_is(rule):
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert {"summary", "description", "runbook_url"} == set(rule["annotations"])
    assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{rule['alert'].lower()}"
    assert f"\n## {rule['alert']}\n" in PAGE.read_text()


def test_the_page_of_alerts_has_no_others():
    headings = {line[3:] for line in PAGE.read_text().splitlines() if line.startswith("## Cotenant")}
    assert headings == {rule["alert"] for rule in rules()}
