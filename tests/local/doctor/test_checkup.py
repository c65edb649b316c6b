"""All subjects together, on a machine that is well."""

from local.doctor.examining import check, names


def test_nothing_is_wrong(plain_machine, charge):
    charge("train")
    charge("later", waits=True)
    assert check(plain_machine) == ()
    assert names(plain_machine) == {"train", "later"}
