"""Rows of values as lines of text."""

from cotenant.simulate.bars import ASCII, BLOCKS, bar, squeeze


def test_many_values_become_the_highest_of_each_column():
    assert squeeze([1, 5, 2, 2, 0, 9], 3) == [5, 2, 9]


def test_few_values_are_repeated():
    assert squeeze([1, 2], 4) == [1, 1, 2, 2]
    assert squeeze([3], 3) == [3, 3, 3]


def test_the_highest_value_is_the_fullest_sign_and_anything_is_more_than_nothing():
    assert bar([0, 0.02, 5, 10], BLOCKS) == " ▁▄█"
    assert bar([0, 10], ASCII, 20) == " +"
    assert bar([0, 0], BLOCKS) == "  "
