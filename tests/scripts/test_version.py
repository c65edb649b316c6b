"""The version stands in src/cotenant/__init__.py; everything else that names it follows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import cotenant

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/cotenant"


def test_the_package_takes_it_from_the_code() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/cotenant/__init__.py"


def test_the_chart_has_it() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (cotenant.__version__, cotenant.__version__), (
        "make deploy"
    )


def test_the_image_is_of_the_same_version() -> None:
    image = yaml.safe_load((CHART / "values.yaml").read_text())["image"]
    assert image["tag"] == "", "else it would not follow the chart"
    text = (ROOT / "deploy/cotenant.yaml").read_text()
    tags = re.findall(rf"image: {re.escape(image['repository'])}:(\S+)", text)
    labels = re.findall(r'app\.kubernetes\.io/version: "([^"]+)"', text)
    assert set(tags) == set(labels) == {cotenant.__version__}, "make deploy"


def test_every_release_in_the_changelog_has_its_date() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in headings[1:]), headings
