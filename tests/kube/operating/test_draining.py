"""Which card is meant, and what becomes of its node."""

import pytest
from kube.operating.clusters import GI, card_of, node, pod

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.kube.operating.draining import Drained, find_card, patch_for
from cotenant.kube.operating.status.snapshot import snapshot

NODES = [node("n1", [16 * GI] * 2, drained=(1,)), node("n2", [16 * GI] * 2)]
SEEN = snapshot(NODES, [pod("a", 4 * GI, on="n2", cards=(1,))]).nodes


@pytest.mark.parametrize(
    ("asked", "on"),
    [
        (card_of("n2", 1), None),
        (card_of("n2", 1)[:12], None),
        ("n2/1", None),
        ("n2/1", "n2"),
        ("1", "n2"),
        ("n2/" + card_of("n2", 1), None),
    ],
)
def test_a_card_is_named_by_uuid_or_by_node_and_index(asked, on):
    assert find_card(NODES, SEEN, asked, on).uuid == card_of("n2", 1)


@pytest.mark.parametrize(
    ("asked", "on", "said"),
    [
        ("1", None, "write NODE/1, or a UUID"),
        ("GPU-", None, "no GPU"),
        ("n2/7", None, "no GPU '7' on node n2"),
        ("n9/0", None, "no node n9: nodes with GPUs are n1, n2"),
        ("n2/0", "n1", "leave out one of them"),
        ("GPU-unknown-uuid", None, "cotenant status -o json"),
    ],
)
def test_what_names_no_card_is_told(asked, on, said):
    with pytest.raises(BadInput, match=said):
        find_card(NODES, SEEN, asked, on)


def test_the_mark_is_added_to_the_others_of_the_node_and_taken_off_alone():
    first = find_card(NODES, SEEN, "n1/0")
    both = ",".join(sorted((card_of("n1", 0), card_of("n1", 1))))
    assert patch_for(first, drained=True) == {"metadata": {"annotations": {names.DRAINED: both}}}
    second = find_card(NODES, SEEN, "n1/1")
    assert patch_for(second, drained=False) == {"metadata": {"annotations": {names.DRAINED: None}}}


def test_what_is_so_already_is_not_written_again():
    assert patch_for(find_card(NODES, SEEN, "n1/1"), drained=True) is None
    assert patch_for(find_card(NODES, SEEN, "n1/0"), drained=False) is None


def test_the_mark_of_a_card_that_is_gone_can_be_taken_off():
    gone = node("n3", [16 * GI], annotations={names.DRAINED: "GPU-gone-forever"})
    target = find_card([gone], snapshot([gone], []).nodes, "GPU-gone-forever")
    assert target.card is None
    assert patch_for(target, drained=False) == {"metadata": {"annotations": {names.DRAINED: None}}}
    assert "not there any more" in Drained(target, drained=False, changed=True).sentence


def test_who_is_still_there_is_named():
    target = find_card(NODES, SEEN, "n2/1")
    said = Drained(target, drained=True, changed=True).sentence
    assert said.startswith("GPU 1 of n2 (GPU-")
    assert said.endswith("is drained: it takes no new grant; still there until they end: team/a (4Gi)")
    nobody = Drained(find_card(NODES, SEEN, "n1/1"), drained=True, changed=False).sentence
    assert "is already drained" in nobody
    assert "nobody is on it" in nobody
