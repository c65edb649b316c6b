"""What an agent reports of its node at /state."""

import json

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.hardware.enforcers.null import Null
from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import limits_of
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.classic.pod_resources import Holder
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.agent.slots.owner import SlotOwner
from cotenant.kube.agent.snapshot import snapshot
from cotenant.kube.agent.state import state

GI = 2**30


def test_slots_the_kubelets_record_and_the_cards_are_told(tmp_path):
    slots = NodeSlots(tmp_path, Null())
    slots.prepare("slot-0003")
    owner, shares = SlotOwner("uid-1", "team", "a", "main"), (Share("GPU-1", 4 * GI),)
    slots.make("slot-0003", owner, shares, limits_of("uid-1", "enforce", shares, lambda _: 0))
    card = CardReading(GPU("GPU-1", 0, "A100", 80 * GI), 5 * GI)
    told = json.loads(
        state(
            "1.0",
            ["the cards"],
            snapshot("n1", Sight((card,), {}, 0.0, granted=True), PodsNow(), slots.read(), 0.0),
            {"slot-0003": (Holder("team", "a", "main"),)},
        )
    )
    assert told["waits"] == ["the cards"]
    assert told["kubelet"] == {"slot-0003": ["team/a/main"]}
    (slot,) = told["slots"]
    assert slot == {
        "device": "slot-0003",
        "uid": "uid-1",
        "namespace": "team",
        "pod": "a",
        "container": "main",
        "mode": "enforce",
        "limits": {"GPU-1": 4 * GI},
        "used": {"GPU-1": 0},
        "held": False,
        "unlimited": [],
        "enforcer_asked": "",
        "enforcer": "",
        "over": 0,
    }
    assert told["cards"] == [
        {"uuid": "GPU-1", "index": 0, "memory": 80 * GI, "used": 5 * GI, "problem": None}
    ]


def test_an_agent_that_has_just_started_tells_that_it_knows_nothing():
    assert json.loads(state("1.0", [], snapshot("n1", None, PodsNow(), [], 0.0), None)) == {
        "version": "1.0",
        "waits": [],
        "slots": [],
        "kubelet": None,
        "cards": [],
        "enforcer": "",
    }
