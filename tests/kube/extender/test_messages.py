"""kube-scheduler's messages: written with Go's names, read in any case, and never anything but BadInput."""

import contextlib
import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.builders import json_values, pod_json

from cotenant.core.errors import BadInput
from cotenant.kube.extender import messages
from cotenant.kube.extender.messages import Args, BindArgs, MetaPod, MetaVictims, PreemptArgs, read

KINDS = (Args, PreemptArgs, BindArgs)
FILTER = {"Pod": pod_json("a"), "Nodes": None, "NodeNames": ["n1", "n2"]}
PREEMPT = {
    "Pod": pod_json("a"),
    "NodeNameToVictims": None,
    "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1}},
}
BIND = {"PodName": "a", "PodNamespace": "web", "PodUID": "uid-a", "Node": "n1"}
VICTIMS = {"n1": MetaVictims((MetaPod("u1"), MetaPod("u2")), 1)}


def body(value):
    return json.dumps(value).encode()


def recased(value, how, keys):
    """The same with the message's own keys spelled otherwise; a pod's have tags."""
    if isinstance(value, list):
        return [recased(each, how, keys) for each in value]
    if isinstance(value, dict):
        return {
            how(k) if k in keys else k: v if k == "Pod" else recased(v, how, keys) for k, v in value.items()
        }
    return value


def test_go_field_names_are_read():
    args = read(body(FILTER), Args)
    assert args.names == ["n1", "n2"]
    assert args.pod.metadata.uid == "uid-a"
    assert read(body(PREEMPT), PreemptArgs).proposed() == VICTIMS
    assert read(body(BIND), BindArgs) == BindArgs("a", "web", "uid-a", "n1")


@pytest.mark.parametrize("how", [str.lower, str.upper, str.swapcase, lambda k: k[0].lower() + k[1:]])
def test_keys_are_read_in_any_case(how):
    keys = {*FILTER, *PREEMPT, *BIND, "Pods", "UID", "NumPDBViolations"}
    args = read(body(recased(FILTER, how, keys)), Args)
    assert args.names == ["n1", "n2"]
    assert args.pod.metadata.name == "a"
    assert read(body(recased(PREEMPT, how, keys)), PreemptArgs).proposed() == VICTIMS
    assert read(body(recased(BIND, how, keys)), BindArgs).node == "n1"


@given(st.integers(0, 2**32))
def test_each_key_may_have_a_case_of_its_own(seed):
    chance = random.Random(seed)

    def how(key):
        return "".join(chance.choice((c.lower(), c.upper())) for c in key)

    keys = {*FILTER, *PREEMPT, "Pods", "UID", "NumPDBViolations"}
    assert read(body(recased(FILTER, how, keys)), Args).names == ["n1", "n2"]
    assert read(body(recased(PREEMPT, how, keys)), PreemptArgs).proposed() == VICTIMS


def test_a_key_of_a_later_version_is_ignored():
    assert read(body({**FILTER, "Hints": {"deep": [1]}}), Args).names == ["n1", "n2"]
    assert read(body({**BIND, "Hints": 1}), BindArgs).uid == "uid-a"


def test_null_and_missing_fields():
    with pytest.raises(BadInput, match="nodeCacheCapable"):
        _ = read(body({**FILTER, "NodeNames": None}), Args).names
    with pytest.raises(BadInput, match="nodeCacheCapable"):
        _ = read(body({"Pod": pod_json("a"), "Nodes": {"items": [{}]}}), Args).names
    assert read(body({"Pod": pod_json("a")}), PreemptArgs).proposed() == {}
    nothing = {"Pod": pod_json("a"), "NodeNameToMetaVictims": {"n1": {"Pods": None, "NumPDBViolations": 0}}}
    assert read(body(nothing), PreemptArgs).proposed() == {"n1": MetaVictims(None, 0)}
    for broken in ({}, {"Pod": None, "NodeNames": []}, {"NodeNames": ["n1"]}, [], None, 1, "x"):
        with pytest.raises(BadInput):
            read(body(broken), Args)


def test_whole_pods_as_victims_are_read_too():
    """As sent to an extender that keeps no cache."""
    sent = {
        "Pod": pod_json("a"),
        "NodeNameToVictims": {"n1": {"Pods": [pod_json("b")], "NumPDBViolations": 0}},
    }
    assert read(body(sent), PreemptArgs).proposed() == {"n1": MetaVictims((MetaPod("uid-b"),), 0)}


@pytest.mark.parametrize("missing", ["name", "namespace", "uid"])
@pytest.mark.parametrize("value", ["", "../x", "a/b", "a%2fb", "x\n", "é"])
def test_a_pod_without_a_proper_identity_is_refused(missing, value):
    """It would wait in line under a name by which it can never be called."""
    pod = pod_json("a")
    pod["metadata"][missing] = value
    for kind in (Args, PreemptArgs):
        with pytest.raises(BadInput, match=missing):
            read(body({"Pod": pod}), kind)


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"])
def test_any_moment_can_be_reckoned_with_and_one_without_a_zone_is_none(moment):
    """Who came first is decided by it."""
    pod = pod_json("a", created=moment)
    created = read(body({"Pod": pod}), Args).pod.metadata.creation_timestamp
    assert isinstance(created.timestamp(), float)
    with pytest.raises(BadInput, match="creationTimestamp"):
        read(body({"Pod": pod_json("a", created=moment[:19])}), Args)


@pytest.mark.parametrize("key", list(BIND))
@pytest.mark.parametrize("value", ["", "a/b", "..", None, 1])
def test_a_bind_of_no_proper_name_is_refused(key, value):
    with pytest.raises(BadInput):
        read(body({**BIND, key: value}), BindArgs)


@given(st.binary(max_size=200))
def test_bytes_are_read_or_bad_input(data):
    for kind in KINDS:
        with pytest.raises(BadInput):
            read(data, kind)


@given(
    st.dictionaries(st.sampled_from([*FILTER, *PREEMPT, *BIND, "pod", "nodenames"]), json_values, max_size=4)
)
def test_any_json_is_read_or_bad_input(value):
    for kind in KINDS:
        with contextlib.suppress(BadInput):
            read(body(value), kind)


@given(st.data())
def test_damaged_messages_are_read_or_bad_input(data):
    text = bytearray(body(data.draw(st.sampled_from((FILTER, PREEMPT, BIND)))))
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    for kind in KINDS:
        with contextlib.suppress(BadInput):
            read(bytes(text), kind)


@pytest.mark.parametrize(
    "text",
    [b"", b"[" * 100_000, b'{"Pod":' * 50_000, b'{"Pod":"\\ud800"}', b"\xff\xfe", b'{"Pod":{}} trailing'],
)
def test_hostile_bodies_are_bad_input(text):
    for kind in KINDS:
        with pytest.raises(BadInput):
            read(text, kind)


def test_five_thousand_names():
    names = [f"node-{at}" for at in range(5000)]
    assert read(body({**FILTER, "NodeNames": names}), Args).names == names
    assert read(body({"pod": pod_json("a"), "nodenames": names}), Args).names == names
    some = random.Random(1).sample(names, 2500)
    answer = json.loads(messages.filtered(some, dict.fromkeys(names, "why"), {}))
    assert answer["NodeNames"] == some
    assert len(answer["FailedNodes"]) == 5000


def test_of_many_nodes_only_those_with_points_are_named():
    names = [f"n{number}" for number in range(40)]
    assert json.loads(messages.prioritized(names, {38: 9, 39: 10})) == [
        {"Host": "n38", "Score": 9},
        {"Host": "n39", "Score": 10},
    ]
    assert len(json.loads(messages.prioritized(names[:16], {3: 10}))) == 16


def test_answers_have_gos_names():
    assert json.loads(messages.filtered(["a"], {"b": "x"}, {"c": "y"})) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "x"},
        "FailedAndUnresolvableNodes": {"c": "y"},
        "Error": "",
    }
    assert json.loads(messages.prioritized(["a", "b"], {0: 10, 1: 9})) == [
        {"Host": "a", "Score": 10},
        {"Host": "b", "Score": 9},
    ]
    assert json.loads(messages.preempted(VICTIMS)) == {
        "NodeNameToMetaVictims": PREEMPT["NodeNameToMetaVictims"]
    }
    assert json.loads(messages.bound()) == {"Error": ""}
    assert json.loads(messages.bound("why")) == {"Error": "why"}
    assert json.loads(messages.failed("why")) == {"Error": "why"}


def test_an_answer_to_preempt_decodes_back():
    back = msgspec.json.decode(messages.preempted(VICTIMS), type=dict[str, dict[str, MetaVictims]])
    assert back == {"NodeNameToMetaVictims": VICTIMS}
