"""Names of nodes and their rows, also where all nodes are named and none is looked up."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cotenant.kube.scheduling.node_rows import NodeRows

NAMES = [f"n{number}" for number in range(8)]


def rows_of(nodes: Sequence[str]) -> NodeRows:
    made = NodeRows()
    for row, name in enumerate(nodes):
        made.add(name, row)
    return made


@given(
    st.lists(st.sampled_from(NAMES), unique=True),
    st.lists(st.sampled_from([*NAMES, "stranger"])),
    st.sets(st.sampled_from(NAMES)),
)
def test_each_name_has_its_row_whichever_are_named(
    nodes: list[str], asked: list[str], gone: set[str]
) -> None:
    rows = rows_of(nodes)
    for name in gone & {*nodes}:
        rows.drop(name)
    there = {name: row for row, name in enumerate(nodes) if name not in gone}
    names, found = rows.located(asked)
    assert sorted(names) == sorted(asked)
    assert found.tolist() == [there.get(name, -1) for name in names]


@given(st.permutations(NAMES))
def test_all_nodes_in_any_order_are_known_by_their_sum(asked: list[str]) -> None:
    rows = rows_of(NAMES)
    names, found = rows.located(asked)
    assert names == NAMES
    assert found.tolist() == list(range(len(NAMES)))
    assert rows.located(asked)[1] is found, "nothing is looked up again"
    rows.drop("n3")
    rows.add("n9", 3)
    names, found = rows.located([each for each in asked if each != "n3"] + ["n9"])
    assert dict(zip(names, found.tolist(), strict=True))["n9"] == 3
    assert rows.located(asked)[0] is asked, "one of them is gone"
