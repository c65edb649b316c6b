"""What the documentation names is there: files of the source tree, other pages, and headings in them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OF_TODAY = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "adr"]
"""The others describe the tree as it was when they were written."""
FOLDERS = ("src", "tests", "csrc", "docs", "bench", "scripts", "charts", "deploy", "protos")
PACKAGE = ROOT / "src" / "cotenant"
ROOMS = tuple(sorted(each.name for each in PACKAGE.iterdir() if each.is_dir() and each.name[0] not in "_."))

CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MADE = ("src/cotenant/native",)
"""Not in the repository: the build makes it."""


def named_paths(text: str) -> Iterator[str]:
    """Words in code quotes that begin with a folder of the repository or of the package."""
    for quoted in CODE.findall(FENCED.sub("", text)):
        for word in quoted.split():
            first, _, rest = word.partition("/")
            if rest and first in (*FOLDERS, *ROOMS) and re.fullmatch(r"[\w./*-]+", word):
                yield word


def headings(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    lines = FENCED.sub("", page.read_text(encoding="utf-8")).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", OF_TODAY, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path):
    named = [each for each in named_paths(page.read_text(encoding="utf-8")) if not each.startswith(MADE)]
    missing = [each for each in named if not any(list(base.glob(each)) for base in (ROOT, PACKAGE))]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(page: Path):
    dead = []
    for one, other in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        target, _, anchor = (one or other).partition("#")
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in headings(file)):
            dead.append(one or other)
    assert not dead


def test_the_examples_of_the_references_are_found():
    assert list(named_paths("see `kube/line/keeper.py` and `make test`")) == ["kube/line/keeper.py"]
