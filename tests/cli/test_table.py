"""Tables that fit the terminal: columns give way by their rank, and what is left out is said."""

import click
import pytest

from cotenant.cli.table import Cell, Column, fit

COLUMNS = (
    Column("NAME", least=4),
    Column("GPU"),
    Column("PEAK", rank=2),
    Column("USER", rank=1),
    Column("WHY", least=10, wraps=True),
)
ROWS = [("a-long-name", "0", "12Gi", "alice", "4Gi asked, largest free room 2Gi on GPU 0")]


def plain(width):
    fitted = fit(COLUMNS, ROWS, width)
    return [click.unstyle(line) for line in fitted.lines], [column.name for column in fitted.left_out]


def test_without_a_terminal_nothing_is_cut():
    lines, left_out = plain(None)
    assert lines[1] == "a-long-name  0    12Gi  alice  4Gi asked, largest free room 2Gi on GPU 0"
    assert left_out == []


@pytest.mark.parametrize("width", range(1, 100))
def test_no_line_is_wider_than_the_terminal(width):
    lines, _ = plain(width)
    assert max(map(len, lines)) <= width


def test_columns_of_the_highest_rank_are_left_out_first():
    assert plain(40)[1] == []
    assert plain(31)[1] == ["PEAK"]
    assert plain(22)[1] == ["PEAK", "USER"]
    assert plain(22)[0][0].split() == ["NAME", "GPU", "WHY"]


def test_a_reason_goes_on_in_the_next_line_and_loses_no_word():
    lines, _ = plain(50)
    why = " ".join(line[lines[0].index("WHY") :] for line in lines[1:])
    assert why.split() == ROWS[0][-1].split()
    assert all(line.startswith(" ") for line in lines[2:])


def test_wide_characters_take_two_columns():
    lines = fit(("NAME", "GPU"), [("模型", "0"), ("ab", "1")], 80).lines
    assert [click.unstyle(line) for line in lines] == ["NAME  GPU", "模型  0", "ab    1"]


def test_control_characters_do_not_reach_the_terminal():
    (_, line) = fit(("NAME",), [("a\x1b[31mb\nc\r",)], 80).lines
    assert line == "a?[31mb?c?"


def test_colours_do_not_count_as_width():
    lines = fit(("USED", "GPU"), [(Cell("4Gi", "red"), "0")], None).lines
    assert click.unstyle(lines[1]) == "4Gi   0"
    assert "\x1b[31m" in lines[1]
