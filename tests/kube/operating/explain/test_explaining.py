"""Why a pod waits and where it runs, in one sentence and a next step."""

from datetime import timedelta

import msgspec
import pytest
from kube.operating.clusters import GI, NOW, card_of, node, pod

from cotenant.dialects import names
from cotenant.kube.api.objects import PodStatus, Terminated
from cotenant.kube.operating.explain.case import Case
from cotenant.kube.operating.explain.explaining import explain_line, explain_pod
from cotenant.kube.operating.explain.explanation import Explanation, line_json
from cotenant.kube.operating.explain.line_view import view_line
from cotenant.kube.operating.status.snapshot import snapshot
from cotenant.kube.pods.eligibility import ANYWHERE, Placement
from cotenant.kube.settings import Settings
from cotenant.observe.view import View, WaitingView

REFUSED = "0/1 nodes are available: 1 no room on the GPUs."


def explained(asked, nodes=(), others=(), placement=ANYWHERE, **case) -> Explanation:
    placements = {asked.metadata.uid: placement}
    pods = (*others, asked)
    return explain_pod(Case(asked, NOW.timestamp(), placements, nodes=tuple(nodes), pods=pods, **case))


def test_no_card_is_big_enough_anywhere():
    said = explained(pod("big", 100 * GI, waits=REFUSED), [node("n1", [80 * GI] * 2), node("n2", [40 * GI])])
    assert (said.state, said.reason) == ("waiting", "too-big")
    assert said.sentence.startswith("100Gi asked, the largest GPU has 80Gi (GPU 0 of n1")
    assert "spread it over 2 GPUs with annotation gpu-count.cotenant.dev/" in said.sentence
    assert "can never be placed" in said.step


def test_room_comes_when_a_pod_ends():
    others = [pod("a", 50 * GI, on="n1"), pod("b", 25 * GI, on="n1")]
    said = explained(pod("c", 30 * GI, waits=REFUSED), [node("n1", [80 * GI])], others)
    assert said.reason == "no-room"
    assert said.sentence == (
        "30Gi asked, largest free room 5Gi on GPU 0 of n1 (of 1 node with GPUs): waiting, 1st in line"
    )
    assert said.step == "wait: it is placed by itself when team/a or team/b ends on n1"
    assert said.data["openings"] == [
        "when team/a or team/b ends on n1",
        "if it asked for at most 5Gi, on n1",
    ]
    assert "GPU 0: 5Gi free of 80Gi; team/a 50Gi, team/b 25Gi" in said.data["nodes"][0]["gpus"]


def test_those_who_are_leaving_already_come_before_those_who_might():
    """Somebody has evicted them for it, or they would have ended anyway."""
    leaving = {"deletionTimestamp": NOW.isoformat()}
    others = [
        pod("other", 50 * GI, on="n1"),
        pod("low", 50 * GI, on="n1", cards=[1], metadata=leaving),
    ]
    said = explained(pod("urgent", 60 * GI, waits=REFUSED), [node("n1", [80 * GI] * 2)], others)
    assert said.step == "wait: it is placed by itself when team/low (being deleted) ends on n1"


def test_only_the_end_of_two_pods_together_helps():
    others = [pod("a", 40 * GI, on="n1"), pod("b", 40 * GI, on="n1")]
    said = explained(pod("c", 60 * GI, waits=REFUSED), [node("n1", [80 * GI])], others)
    assert "when team/a and team/b end on n1" in said.data["openings"]


def test_room_is_held_for_the_head_of_the_line():
    others = [
        pod("a", 60 * GI, on="n1"),
        pod("big", 70 * GI, age=300, waits=REFUSED),
    ]
    said = explained(pod("small", 10 * GI, age=20, waits=REFUSED), [node("n1", [80 * GI])], others)
    assert said.reason == "held"
    assert said.sentence == (
        "10Gi asked, GPU 0 of n1 has room but is held for team/big, 1st in line, which has waited 5m: "
        "waiting, 2nd in line"
    )
    assert "cotenant explain -n team big" in said.step


def test_who_has_not_waited_long_holds_nothing():
    others = [pod("a", 60 * GI, on="n1"), pod("big", 70 * GI, age=30, waits=REFUSED)]
    said = explained(pod("small", 10 * GI, age=20, waits=REFUSED), [node("n1", [80 * GI])], others)
    assert said.reason == "being-placed"


def test_the_line_goes_by_priority_and_then_by_age():
    others = [
        pod("full", 80 * GI, on="n1"),
        pod("older", 10 * GI, age=50, waits=REFUSED),
        pod("higher", 10 * GI, age=1, priority=5, waits=REFUSED),
        pod("younger", 10 * GI, age=5, waits=REFUSED),
        pod("of-no-gpu", age=500, waits=REFUSED),
        pod("gated", 10 * GI, age=500, waits=REFUSED, schedulingGates=[{"name": "x"}]),
    ]
    said = explained(pod("me", 10 * GI, age=20, waits=REFUSED), [node("n1", [80 * GI])], others)
    assert (said.data["place"], said.data["line"]) == (3, 4)
    assert said.sentence.endswith("waiting, 3rd in line")


def test_a_pod_that_cpu_keeps_is_not_in_line():
    no_cpu = "0/1 nodes are available: 1 Insufficient cpu."
    others = [pod("full", 78 * GI, on="n1"), pod("other", 10 * GI, age=50, waits=REFUSED)]
    kept = pod("kept", 4 * GI, age=500, waits=no_cpu)
    said = explained(kept, [node("n1", [80 * GI])], others)
    assert said.reason == "not-the-gpus"
    assert said.sentence == f"kube-scheduler has another reason: {no_cpu}"
    assert (said.data["place"], said.data["line"]) == (None, 1)
    assert dict(said.sections)["line"][0].startswith("not in line, for 8m: ")
    said = explained(pod("me", 10 * GI, age=20, waits=REFUSED), [node("n1", [80 * GI])], [*others, kept])
    assert (said.data["place"], said.data["line"]) == (2, 2), "nor is it ahead of anybody"


def test_the_model_is_not_there():
    wishes = {names.GPU_MODEL: "H100"}
    said = explained(pod("m", 4 * GI, annotations=wishes, waits=REFUSED), [node("n1", [80 * GI])])
    assert said.reason == "model-missing"
    assert "model H100 asked" in said.sentence
    assert "NVIDIA A100-SXM4-80GB" in said.sentence
    assert names.GPU_MODEL in said.step


@pytest.mark.parametrize(
    ("trouble", "reason", "found", "step"),
    [
        (
            {"conditions": [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting"}]},
            "not-ready",
            "node n1 has the room, but it is not Ready: Kubelet stopped posting",
            "kubectl describe node n1",
        ),
        (
            {"unschedulable": True},
            "cordoned",
            "node n1 has the room, but it is cordoned",
            "kubectl uncordon n1",
        ),
        (
            {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]},
            "tainted",
            "node n1 has the room, but it has the taint team=a:NoSchedule",
            "toleration",
        ),
    ],
)
def test_the_only_node_with_room_may_not_be_used(trouble, reason, found, step):
    said = explained(
        pod("p", 4 * GI, waits=REFUSED), [node("n1", [80 * GI], **trouble), node("n2", [2 * GI])]
    )
    assert said.reason == reason
    assert said.sentence == found
    assert step in said.step


def test_a_node_selector_and_an_affinity_are_understood():
    only_b = msgspec.convert({"nodeSelector": {"zone": "b"}}, Placement)
    said = explained(pod("p", 4 * GI, waits=REFUSED), [node("n1", [80 * GI])], placement=only_b)
    assert said.reason == "not-selected"
    assert "zone=b" in said.sentence
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity = msgspec.convert({"affinity": {"nodeAffinity": required}}, Placement)
    nodes = [node("n1", [80 * GI]), node("n2", [8 * GI], labels={"zone": "b"})]
    full = [pod("a", 8 * GI, on="n2")]
    said = explained(pod("p", 4 * GI, waits=REFUSED), nodes, full, placement=affinity)
    assert said.reason == "no-room"
    assert said.data["openings"][0] == "when team/a ends on n2"


def test_a_drained_or_sick_card_would_help():
    full = [pod("a", 80 * GI, on="n1", cards=(0,))]
    drained = explained(pod("p", 4 * GI, waits=REFUSED), [node("n1", [80 * GI] * 2, drained=(1,))], full)
    assert "if GPU 1 of n1 were not drained: cotenant undrain n1/1" in drained.data["openings"]
    sick = explained(
        pod("p", 4 * GI, waits=REFUSED), [node("n1", [80 * GI] * 2, problems={1: "XID 79"})], full
    )
    assert "if GPU 1 of n1 were well: XID 79" in sick.data["openings"]


def test_there_is_room_and_something_else_keeps_it():
    said = explained(
        pod("p", 4 * GI, waits="0/1 nodes are available: 1 Insufficient cpu."), [node("n1", [80 * GI])]
    )
    assert said.reason == "not-the-gpus"
    assert "Insufficient cpu" in said.sentence


def test_no_scheduler_looks_at_it():
    said = explained(pod("p", 4 * GI, age=100), [node("n1", [80 * GI])])
    assert said.reason == "no-scheduler"
    assert "the scheduler cotenant has not looked at it" in said.sentence


def test_no_node_shows_cards():
    said = explained(pod("p", 4 * GI, waits=REFUSED), [node("n1", [])])
    assert said.reason == "no-cards"
    assert "doctor" in said.step


@pytest.mark.parametrize(
    ("asked", "state", "reason", "words"),
    [
        (pod("p"), "not-gpu", "", "asks for no GPU"),
        (pod("p", asks={"nvidia.com/gpu": "1"}), "not-gpu", "other-resource", "the dialect nvidia is off"),
        (pod("p", asks={names.GPU_MEMORY: "4Q"}), "refused", "bad-demand", "4Q"),
        (pod("p", asks={names.GPU_MEMORY: "4Gi"}), "refused", "not-admitted", "webhook"),
        (pod("p", GI, schedulingGates=[{"name": "quota"}]), "waiting", "gated", "quota"),
        (pod("p", GI, scheduler="other"), "waiting", "other-scheduler", "scheduler other"),
        (pod("p", GI, on="n1", phase="Succeeded"), "ended", "", "holds nothing"),
        (pod("p", GI, metadata={"deletionTimestamp": NOW.isoformat()}), "ending", "terminating", "deleted"),
        (pod("p", on="n1", asks={names.GPU_MEMORY: "4Gi", names.GPU_SLOT: "1"}), "refused", "no-grant", "n1"),
        (pod("p", GI, on="n1", annotations={names.GRANT: "{}"}), "refused", "grant-unreadable", "version"),
    ],
)
def test_what_has_nothing_to_do_with_room_is_said_plainly(asked, state, reason, words):
    said = explained(asked, [node("n1", [80 * GI])])
    assert (said.state, said.reason) == (state, reason)
    assert words in said.sentence


def test_a_running_pod_shows_its_grant_and_what_enforces_it():
    said = explained(pod("p", 8 * GI, on="n1", cards=(0, 1)), [node("n1", [80 * GI] * 2)])
    assert said.state == "running"
    assert said.sentence == (
        "it runs with 8Gi of GPU memory on n1: limited by the shim, enforce by the agent's default"
    )
    (granted,) = said.sections[0][1]
    assert granted.startswith(f"main: 4Gi on GPU 0 ({card_of('n1', 0)}, NVIDIA A100-SXM4-80GB), 4Gi on GPU 1")
    assert said.data["enforcer"] == "shim"


def test_a_pod_that_does_not_use_its_gpu_is_said_to_be_idle():
    said = explained(pod("p", 8 * GI, on="n1", idle=3 * 3600), [node("n1", [80 * GI])])
    assert (said.state, said.reason) == ("running", "idle")
    assert said.sentence.endswith("enforce by the agent's default; idle for 3h")
    since = (NOW - timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert said.data["idleSince"] == since
    assert dict(said.sections)["use"] == (f"idle since {since}: no kernel launch and no allocation",)


@pytest.mark.parametrize(
    ("annotations", "labels", "mode", "source"),
    [
        ({names.ENFORCE: "warn"}, {names.ENFORCE: "observe"}, "warn", "pod's annotation"),
        ({}, {names.ENFORCE: "observe"}, "observe", "namespace's label"),
        ({}, {}, "enforce", "default"),
        ({}, {names.ENFORCE: "sometimes"}, "unknown", "sometimes"),
    ],
)
def test_who_says_what_happens_at_the_limit(annotations, labels, mode, source):
    said = explained(pod("p", GI, on="n1", annotations=annotations), [node("n1", [80 * GI])], labels=labels)
    assert said.data["mode"] == mode
    assert source in said.data["modeFrom"]


def test_a_container_that_does_not_start_is_named_with_its_reason():
    stuck = msgspec.structs.replace(
        pod("p", GI, on="n1", phase="Pending"),
        status=msgspec.convert(
            {
                "phase": "Pending",
                "containerStatuses": [
                    {
                        "name": "main",
                        "state": {"waiting": {"reason": "CreateContainerError", "message": "no slot"}},
                    }
                ],
            },
            type(pod("p").status),
        ),
    )
    said = explained(stuck, [node("n1", [80 * GI])])
    assert said.reason == "does-not-start"
    assert "container 'main' does not start: CreateContainerError: no slot" in said.sentence


def crashed(seconds: float, code: int = 1, reason: str = "Error") -> Terminated:
    return Terminated(code, reason, NOW - timedelta(seconds=seconds))


def with_status(state: dict, restarts: int, **spec):
    status = {"name": "main", "state": state, "restartCount": restarts}
    return msgspec.structs.replace(
        pod("p", GI, on="n1", **spec),
        status=msgspec.convert({"phase": "Running", "containerStatuses": [status]}, PodStatus),
    )


@pytest.mark.parametrize(
    ("state", "ended", "words"),
    [
        (
            {"waiting": {"reason": "CrashLoopBackOff"}},
            crashed(20),
            "the kubelet waits before it starts it again",
        ),
        ({"running": {}}, crashed(90, 137, "OOMKilled"), "exit code 137 (OOMKilled)"),
        (
            {"terminated": {"exitCode": 2, "finishedAt": NOW.isoformat()}},
            crashed(60),
            "has ended and is started again, 7 restarts so far; the last end, 0s ago: exit code 2",
        ),
    ],
    ids=["in back-off", "between two crashes", "just ended"],
)
def test_a_pod_whose_container_crashes_again_and_again_does_not_run(state, ended, words):
    said = explained(with_status(state, 7), [node("n1", [80 * GI])], terminated={"main": ended})
    assert (said.state, said.reason) == ("crashing", "crash-loop")
    assert said.sentence.startswith("it holds 1Gi of GPU memory on n1, and container 'main' ")
    assert words in said.sentence
    assert said.step == "read why it ended: kubectl logs -n team p -c main --previous"


@pytest.mark.parametrize(
    ("state", "restarts", "ended", "spec"),
    [
        ({"running": {}}, 7, crashed(4000), {}),
        ({"running": {}}, 1, crashed(20, 0, "Completed"), {}),
        ({"terminated": {"exitCode": 1}}, 0, crashed(20), {"restartPolicy": "Never"}),
    ],
    ids=["crashed long ago", "ended well", "is not restarted"],
)
def test_a_pod_that_was_restarted_once_runs(state, restarts, ended, spec):
    said = explained(
        with_status(state, restarts, **spec), [node("n1", [80 * GI])], terminated={"main": ended}
    )
    assert (said.state, said.reason) == ("running", "")


def test_a_pod_on_a_node_that_is_not_ready_or_whose_card_is_gone():
    lost = node("n1", [80 * GI], conditions=[{"type": "Ready", "status": "False"}])
    assert explained(pod("p", GI, on="n1"), [lost]).reason == "not-ready"
    gone = explained(pod("p", GI, on="n1", cards=(1,)), [node("n1", [80 * GI])])
    assert gone.reason == "card-gone"
    assert explained(pod("p", GI, on="n1"), [node("n2", [80 * GI])]).reason == "node-gone"


def test_who_may_not_see_the_cluster_is_told_what_the_scheduler_wrote():
    said = explained(pod("p", GI, waits=REFUSED), whole=False)
    assert said.sentence == REFUSED


def test_a_thousand_nodes_are_counted_and_few_are_listed():
    nodes = [node(f"n{number}", [80 * GI]) for number in range(300)]
    full = [pod(f"p{number}", 80 * GI, on=f"n{number}") for number in range(300)]
    said = explained(pod("p", GI, waits=REFUSED), nodes, full)
    assert len(said.data["nodes"]) == 300
    assert any("280 more nodes" in line for line in said.lines())


def test_the_whole_line_is_told_by_one_look_with_the_same_words():
    nodes = (node("n1", [80 * GI]),)
    full = pod("full", 70 * GI, on="n1")
    waiting = [pod(f"w{number}", (20 + number) * GI, age=50 - number, waits=REFUSED) for number in range(3)]
    pods = (full, *waiting)
    now = NOW.timestamp()
    view = view_line(nodes, pods, Settings(), now, {})
    cases = [Case(each, now, nodes=nodes, pods=pods) for each in waiting]
    brief = explain_line(cases, view, snapshot(nodes, pods).nodes)
    assert [each.place for each in brief] == [1, 2, 3]
    for case, told in zip(cases, brief, strict=True):
        whole = explain_pod(case)
        assert (told.code, told.reason) == (whole.reason, whole.sentence)


def test_each_pod_in_line_is_explained_by_where_it_may_go():
    """A room that one pod may not use is neither promised to it, nor kept from the next."""
    nodes = (node("full", [80 * GI]), node("free", [80 * GI], labels={"zone": "b"}))
    kept, tolerant = (
        pod(name, 20 * GI, age=age, waits=REFUSED) for name, age in (("kept", 50), ("tolerant", 40))
    )
    elsewhere = pod("elsewhere", 20 * GI, age=30, waits="0/2 nodes are available: 2 no room on the GPUs.")
    pods = (pod("a", 70 * GI, on="full"), kept, tolerant, elsewhere)
    placements = {
        kept.metadata.uid: msgspec.convert(
            {"nodeSelector": {"kubernetes.io/os": "linux", "zone": "a"}}, Placement
        ),
        elsewhere.metadata.uid: msgspec.convert({"nodeSelector": {"zone": "b"}}, Placement),
    }
    now = NOW.timestamp()
    view = view_line(nodes, pods, Settings(), now, placements)
    cases = [Case(each, now, placements, nodes=nodes, pods=pods) for each in (kept, tolerant, elsewhere)]
    brief = explain_line(cases, view, snapshot(nodes, pods).nodes)
    assert [each.code for each in brief] == ["not-selected", "being-placed", "being-placed"]
    for case, told in zip(cases, brief, strict=True):
        whole = explain_pod(case)
        assert (told.code, told.reason) == (whole.reason, whole.sentence)


def test_a_pod_of_another_scheduler_is_explained_alike_alone_and_in_line():
    nodes = (node("n1", [80 * GI]),)
    asked = pod("p", 4 * GI, waits="0/1 nodes are available: 1 Insufficient cotenant.dev/gpu-memory.")
    asked = msgspec.structs.replace(asked, spec=msgspec.structs.replace(asked.spec, scheduler_name="volcano"))
    case = Case(asked, NOW.timestamp(), nodes=nodes, pods=(asked,))
    view = view_line(nodes, (asked,), Settings(), case.now, {})
    (told,) = explain_line([case], view, snapshot(nodes, (asked,)).nodes)
    assert (told.code, told.reason) == ("other-scheduler", explain_pod(case).sentence)


def test_a_pod_in_line_has_the_gpus_that_are_held_for_it():
    nodes = (node("n1", [80 * GI] * 2),)
    first, second = pod("first", 80 * GI, age=300, waits=REFUSED), pod("second", GI, age=20, waits=REFUSED)
    pods = (pod("a", 60 * GI, on="n1"), pod("b", 60 * GI, on="n1", cards=(1,)), first, second)
    now = NOW.timestamp()
    line = view_line(nodes, pods, Settings(), now, {})
    cases = [Case(each, now, nodes=nodes, pods=pods) for each in (first, second)]
    head, other = explain_line(cases, line, snapshot(nodes, pods).nodes)
    assert (str(head), head.place, head.waited_seconds, head.code) == ("team/first", 1, 300, "no-room")
    assert len(head.held) == 1
    assert set(head.held) <= {card_of("n1", 0), card_of("n1", 1)}
    assert other.held == ()


def test_the_line_s_json_counts_also_the_pods_that_are_not_listed():
    waiting = WaitingView("u", "a", 3, 41.6, "8Gi asked", code="no-room", namespace="team")
    assert line_json(View((), line=(waiting,), length=3, left_out=2)) == [
        {
            "target": "pod team/a",
            "state": "waiting",
            "reason": "no-room",
            "sentence": "8Gi asked",
            "next": "",
            "place": 3,
            "line": 3,
            "waited": 42,
        }
    ]


def test_a_node_that_cannot_be_understood_makes_no_card_gone():
    damaged = node("n1", [80 * GI], annotations={names.GPUS: "{"})
    said = explained(pod("p", GI, on="n1"), [damaged])
    assert (said.state, said.reason) == ("running", "")
    assert said.data["enforcer"] == "unknown"
    assert said.sections[0][1] == (f"main: 1Gi on {card_of('n1', 0)}",)


def test_of_several_held_cards_one_with_room_is_named():
    others = [
        pod("a", 80 * GI, on="n1", cards=(0,)),
        pod("b", 40 * GI, on="n1", cards=(1,)),
        pod("pair", 160 * GI, age=300, waits=REFUSED, annotations={names.gpu_count("main"): "2"}),
    ]
    said = explained(pod("small", 10 * GI, age=20, waits=REFUSED), [node("n1", [80 * GI] * 2)], others)
    assert said.reason == "held"
    assert "GPU 1 of n1 has room but is held for team/pair" in said.sentence


@pytest.mark.parametrize(
    ("resource", "step"),
    [(names.GPU_SLOT, "clients_per_gpu"), (names.GPU_MEMORY, "doctor"), ("cpu", "describe")],
)
def test_what_the_scheduler_counts_besides_cards_has_a_step_of_its_own(resource, step):
    says = f"0/1 nodes are available: 1 Insufficient {resource}."
    said = explained(pod("p", GI, waits=says), [node("n1", [80 * GI])])
    assert said.reason == "not-the-gpus"
    assert step in said.step


def test_nobody_ahead_is_taken_to_go_to_a_node_that_is_cordoned():
    nodes = [node("n1", [80 * GI]), node("n2", [80 * GI], unschedulable=True)]
    others = [pod("a", 60 * GI, on="n1"), pod("big", 70 * GI, age=300, waits=REFUSED)]
    said = explained(pod("small", 10 * GI, age=20, waits=REFUSED), nodes, others)
    assert said.reason == "held"
    assert "held for team/big" in said.sentence


def test_whose_turn_comes_first_is_said_where_no_end_helps():
    others = [pod("a", 75 * GI, on="n1"), pod("big", 70 * GI, age=300, waits=REFUSED)]
    said = explained(
        pod("p", 30 * GI, age=20, waits=REFUSED), [node("n1", [80 * GI] * 2, drained=(1,))], others
    )
    assert said.reason == "no-room"
    assert said.step == (
        "wait: team/big is served first; it would fit if GPU 1 of n1 were not drained: cotenant undrain n1/1"
    )


def test_what_was_asked_to_hold_a_pod_and_what_does_are_both_said():
    words = (
        "asked driver, holds shim: container main: limit of 8Gi on GPU 0 held by shim (no cgroup is found)"
    )
    said = explained(pod("p", 8 * GI, on="n1", held=("True", "Shim", words)), [node("n1", [80 * GI])])
    assert "limited by the shim" in said.sentence
    assert (said.data["enforcerAsked"], said.data["enforcer"]) == ("driver", "shim")
    (line,) = [each for each in dict(said.sections)["limits"] if each.startswith("asked")]
    assert line.startswith("asked driver, holds shim (Shim): container main: limit of 8Gi on GPU 0")
    fresh = explained(pod("p", 8 * GI, on="n1"), [node("n1", [80 * GI])])
    assert fresh.data["limitHeld"] is None
    assert any("has not reported what holds it yet" in each for each in dict(fresh.sections)["limits"])


def test_a_pod_over_its_limit_is_said_to_be():
    words = "asked shim, holds watch: container main holds 9Gi on GPU 0, 1Gi more than its limit of 8Gi"
    said = explained(pod("p", 8 * GI, on="n1", held=("False", "OverLimit", words)), [node("n1", [80 * GI])])
    assert (said.state, said.reason) == ("running", "over-limit")
    assert "watched" in said.sentence
    assert "docs/enforcers.md" in said.step


SMALL = {"cpu": "8", "memory": "32Gi", "pods": "3"}
BOTH = "0/2 nodes are available: 1 Insufficient cpu, 1 no room on the GPUs."


def plain(name, on, **requests):
    return pod(name, on=on, asks=requests, namespace="web")


def gpu_pod(name, gpu_memory, waits=BOTH, **requests):
    asks = {names.GPU_MEMORY: str(gpu_memory), names.GPU_SLOT: "1", **requests}
    return pod(name, asks=asks, waits=waits)


def full_and_stranded():
    """A node whose GPU is full, and one without CPU left whose GPUs are not."""
    nodes = [node("n1", [80 * GI], allocatable=SMALL), node("n7", [40 * GI, 80 * GI], allocatable=SMALL)]
    others = [pod("full", 80 * GI, on="n1"), pod("some", 10 * GI, on="n7", cards=[1])]
    return nodes, others


@pytest.mark.parametrize(
    ("taken", "asked", "said"),
    [
        ({"cpu": "8"}, {"cpu": "1"}, "has no CPU left"),
        ({"cpu": "6500m"}, {"cpu": "4"}, "has 1.5 CPU left and 4 is asked for"),
        ({"memory": "32Gi"}, {"memory": "1Gi"}, "has no memory left"),
        ({"memory": "30Gi"}, {"memory": "4Gi"}, "has 2Gi memory left and 4Gi is asked for"),
        (
            {"cpu": "8", "memory": "32Gi"},
            {"cpu": "1", "memory": "1Gi"},
            "has no CPU left and has no memory left",
        ),
    ],
)
def test_what_strands_a_card_is_named(taken, asked, said):
    nodes, others = full_and_stranded()
    found = explained(gpu_pod("p", 30 * GI, **asked), nodes, [*others, plain("web", "n7", **taken)])
    assert found.reason == "stranded"
    lines = [f"GPU 1 of n7 has 70Gi free; the node {said}", f"GPU 0 of n7 has 40Gi free; the node {said}"]
    assert found.sentence == f"{lines[0]}: waiting, 1st in line"
    assert dict(found.sections)["GPUs with room for it that are stranded"] == tuple(lines)
    stranded = found.to_json()["stranded"]
    assert [each["sentence"] for each in stranded] == lines
    assert (stranded[0]["node"], stranded[0]["gpu"], stranded[0]["free"]) == ("n7", 1, 70 * GI)
    assert {each["kind"] for each in stranded[0]["lacks"]} == set(asked)
    assert "kubectl get pods -A --field-selector spec.nodeName=n7" in found.step


def test_a_node_that_takes_no_more_pods_strands_its_cards():
    nodes, others = full_and_stranded()
    found = explained(gpu_pod("p", 30 * GI), nodes, [*others, plain("a", "n7"), plain("b", "n7")])
    assert found.sentence.startswith("GPU 1 of n7 has 70Gi free; the node takes no more pods: ")
    assert found.to_json()["stranded"][0]["lacks"] == [{"kind": "pods", "left": 0, "asked": 1}]


def test_a_card_without_room_for_the_pod_is_not_called_stranded():
    nodes, others = full_and_stranded()
    taken = plain("web", "n7", cpu="8")
    found = explained(gpu_pod("p", 60 * GI, cpu="1"), nodes, [*others, taken])
    assert [each["gpu"] for each in found.to_json()["stranded"]] == [1]
    found = explained(gpu_pod("p", 75 * GI, cpu="1"), nodes, [*others, taken])
    assert found.reason == "no-room"
    assert found.to_json()["stranded"] == []


def test_where_another_node_has_all_of_it_nothing_is_said_to_keep_it():
    nodes, others = full_and_stranded()
    taken = plain("web", "n7", cpu="8")
    roomy = node("n8", [40 * GI], allocatable=SMALL)
    found = explained(gpu_pod("p", 30 * GI, cpu="1", waits=REFUSED), [*nodes, roomy], [*others, taken])
    assert (found.reason, "n8" in found.sentence) == ("being-placed", True)
    assert len(found.to_json()["stranded"]) == 2, "which is still true"


def test_kube_schedulers_reason_is_quoted_with_the_card_that_is_stranded():
    nodes, others = full_and_stranded()
    says = "0/2 nodes are available: 2 Insufficient cpu."
    found = explained(
        gpu_pod("p", 30 * GI, cpu="1", waits=says), nodes, [*others, plain("web", "n7", cpu="8")]
    )
    assert found.reason == "not-the-gpus"
    assert found.sentence == (
        f"GPU 1 of n7 has 70Gi free; the node has no CPU left; kube-scheduler has another reason: {says}"
    )


def test_of_many_stranded_cards_the_most_useful_are_listed():
    nodes = [node(f"n{at:02}", [(10 + at) * GI] * 8, allocatable=SMALL) for at in range(20)]
    others = [plain(f"web-{at}", f"n{at:02}", cpu="8") for at in range(20)]
    found = explained(gpu_pod("p", 8 * GI, cpu="1"), nodes, others)
    listed = dict(found.sections)["GPUs with room for it that are stranded"]
    assert listed[0] == "GPU 0 of n19 has 29Gi free; the node has no CPU left"
    assert listed[-1] == "and 150 more: -o json lists them"
    assert len(listed) == 11
    assert len(found.to_json()["stranded"]) == 160
    assert "(and so on 19 more nodes)" in found.sentence
