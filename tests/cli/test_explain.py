"""The table of the pods in line."""

from cotenant.cli.explain import show_line
from cotenant.observe.view import View, WaitingView


def test_each_pod_in_line_has_a_row_with_its_place_and_the_reason(capsys):
    first = WaitingView("u", "train", 1, 300.6, "80Gi asked", code="no-room", namespace="team")
    show_line(View((), line=(first, WaitingView("v", "web", 12, 20.0, "held", code="held", namespace="b"))))
    assert capsys.readouterr().out == (
        "LINE  POD         WAITED  REASON   WHY\n"
        "1     team/train  5m01s   no-room  80Gi asked\n"
        "12    b/web       20s     held     held\n"
    )


def test_an_empty_line_is_said_in_words(capsys):
    show_line(View(()))
    assert capsys.readouterr().out == "nobody waits for a GPU\n"
