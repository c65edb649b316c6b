"""A plan is made from what the API server says, and carried out step by step until something is not as planned."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from kube.fakeapi import FakeApi, Fate, lost, refused
from kube.operating.clusters import GI, NOW, card_of, node, pod, uid_of

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.seen_pods import SeenPods, pod_kinds
from cotenant.dialects import names
from cotenant.kube.api.errors import TooManyRequests
from cotenant.kube.api.resources import CONFIG_MAPS, NODES, POD_DISRUPTION_BUDGETS, PODS
from cotenant.kube.binding.statistics_map import KEY, NAME, encode
from cotenant.kube.operating.defrag.applying import Applying, Outcome, Stopped
from cotenant.kube.operating.defrag.closing import AnotherWorks, Closing
from cotenant.kube.operating.defrag.planning import NOBODY, Plan, make_plan
from cotenant.kube.operating.defrag.state import read_state
from cotenant.kube.operating.defrag.wish import wish_for_demand, wish_for_pod, wishes_of_line
from cotenant.kube.scheduling.pod_statistics import EndedPods
from cotenant.kube.settings import Settings

WALL = NOW.timestamp()
WAITS = "0/2 nodes are available: 2 Insufficient cotenant.dev/gpu-memory."


def raw(thing: Any) -> dict[str, Any]:
    """As the API server sends it: without fields that are not set."""
    body: dict[str, Any] = msgspec.to_builtins(thing)
    body["metadata"] = {key: value for key, value in body["metadata"].items() if value is not None}
    return body


def owned(name: str, app: str, memory: int, on: str, **more: Any) -> dict[str, Any]:
    owner = {
        "kind": "ReplicaSet",
        "name": app,
        "uid": uid_of(app),
        "controller": True,
        "apiVersion": "apps/v1",
    }
    return raw(
        pod(name, memory * GI, on=on, metadata={"ownerReferences": [owner], "labels": {"app": app}}, **more)
    )


def fragmented(*more: dict[str, Any]) -> FakeApi:
    """Two nodes with a card of 80 GiB and a pod of 10 GiB each; `big` waits for a whole card."""
    api = FakeApi(fully_guarded=False)
    api.paths["/version"] = {}
    for name in ("n1", "n2"):
        api.put(NODES, raw(node(name, [80 * GI])))
    for body in (owned("web-a", "web", 10, "n1"), owned("db-a", "db", 20, "n2"), *more):
        api.put(PODS, body, "team")
    api.put(PODS, raw(pod("big", whole=True, waits=WAITS)), "team")
    return api


def planned(api: FakeApi, wishes: Callable[[Any], Any] = wishes_of_line, most: int = 8) -> Plan:
    async def work() -> Plan:
        state = await read_state(api, WALL)  # type: ignore[arg-type]
        return make_plan(state, wishes(state), most)

    return asyncio.run(work())


def replaced(name: str, app: str, memory: int, on: str) -> Fate:
    """The pod ends at once, and its controller's next pod is placed there."""

    async def fate(api: FakeApi, act: Callable[[], None]) -> None:
        act()
        for body in list(api.all(PODS).values()):
            if body["metadata"].get("deletionTimestamp"):
                api.remove(PODS, body["metadata"]["name"], "team")
        api.put(PODS, owned(name, app, memory, on), "team")

    return fate


def applied(api: FakeApi, plan: Plan, timeout: float = 2.0, told: list[str] | None = None) -> Outcome:
    async def work() -> Outcome:
        applying = Applying(
            api,  # type: ignore[arg-type]
            lambda: read_state(api, WALL),  # type: ignore[arg-type]
            (told if told is not None else []).append,
            asyncio.get_running_loop().time,
            lambda: WALL,
            timeout,
            settle=0.0,
        )
        await applying.clean_up()
        return await applying.run(plan)

    return asyncio.run(work())


def is_open(api: FakeApi) -> bool:
    """Whether nothing is left drained."""
    marks = {names.DRAINED, names.DEFRAG}
    return not any(
        value
        for body in api.all(NODES).values()
        for key, value in body["metadata"]["annotations"].items()
        if key in marks
    )


def for_whole(state: Any) -> Any:
    return [wish_for_demand(state, Demand(whole=1))]


def test_the_plan_says_who_moves_where_and_what_that_opens():
    plan = planned(fragmented())
    assert plan.lines() == [
        "moving 1 pod opens a whole A100-SXM4-80GB for team/big: GPU 0 of n1",
        "  1. team/web-a (replicaset/web, 10Gi): GPU 0 of n1 to GPU 0 of n2",
    ]
    body = json.loads(json.dumps(plan.to_json()))
    assert body["state"] == "plan"
    assert body["for"] == "team/big"
    assert body["steps"][0]["from"]["gpus"][0]["uuid"] == card_of("n1", 0)
    assert body["steps"][0]["to"]["gpus"][0]["uuid"] == card_of("n2", 0)


def test_moves_are_judged_by_what_the_leader_has_kept_and_without_it_by_those_that_run():
    async def seen(api: FakeApi) -> int:
        state = await read_state(api, WALL)  # type: ignore[arg-type]
        return state.view.cluster.learned.seen.total

    api = fragmented()
    run = asyncio.run(seen(api))
    ended = EndedPods(SeenPods(), pods=7, since=1.0)
    ended.seen.count(kind for _ in range(7) for kind in pod_kinds((Demand(Memory(bytes=40 * GI)),), 1000, GI))
    statistics = {"metadata": {"name": NAME}, "data": {KEY: encode(ended)}}
    api.put(CONFIG_MAPS, statistics, Settings().namespace)
    assert asyncio.run(seen(api)) == run + 7
    api.put(CONFIG_MAPS, {**statistics, "data": {KEY: "foreign"}}, Settings().namespace)
    assert asyncio.run(seen(api)) == run


def test_nobody_waits_or_there_is_room_already():
    api = fragmented()
    api.remove(PODS, "big", "team")
    assert planned(api) == NOBODY
    api.put(NODES, raw(node("n3", [80 * GI])))
    assert planned(api, for_whole).state == "open"


def test_without_a_plan_it_says_what_keeps_the_pods():
    api = FakeApi(fully_guarded=False)
    for name in ("n1", "n2"):
        api.put(NODES, raw(node(name, [80 * GI])))
        api.put(PODS, raw(pod(f"bare-{name}", 10 * GI, on=name)), "team")
    plan = planned(api, for_whole)
    assert plan.state == "none"
    assert plan.fewest
    assert plan.sentence == "no plan with at most 8 moves opens a whole GPU"
    assert "team/bare-n1, team/bare-n2: has no controller that would make it anew" in plan.notes


def test_a_pod_goes_only_to_nodes_that_its_spec_allows():
    tied = owned("web-a", "web", 10, "n1", nodeSelector={"kubernetes.io/hostname": "n1"})
    api = fragmented()
    api.put(
        PODS, {**tied, "spec": {**tied["spec"], "nodeSelector": {"kubernetes.io/hostname": "n1"}}}, "team"
    )
    assert [step.name for step in planned(api).steps] == ["db-a"]


def test_a_cordoned_node_is_no_new_place():
    api = fragmented()
    body = api.raw(NODES, "n2")
    api.put(NODES, {**body, "spec": {"unschedulable": True}})
    assert planned(api).state == "none", "nor would room there be of use"


@pytest.mark.parametrize(
    ("name", "said"), [("nobody", "no pod 'nobody'"), ("web-a", "is on n1"), ("team/web-a", "is on n1")]
)
def test_only_a_pod_that_waits_can_be_named(name, said):
    with pytest.raises(BadInput, match=said):
        planned(fragmented(), lambda state: [wish_for_pod(state, "team", name)])


def test_a_pod_is_named_with_its_namespace_or_without():
    for name in ("big", "team/big"):
        plan = planned(fragmented(), lambda state, name=name: [wish_for_pod(state, "team", name)])
        assert plan.wish is not None
        assert plan.wish.pod == "team/big"


class TestApplied:
    @pytest.fixture
    def api(self) -> FakeApi:
        """db stays: the plan is to move web from n1 to n2."""
        kept = fragmented()
        kept.put(PODS, owned("db-a", "db", 20, "n2", annotations={_SAFE: "false"}), "team")
        return kept

    def test_the_pod_is_evicted_and_replaced_and_cards_are_in_service_again(self, api: FakeApi):
        plan, told = planned(api, for_whole), list[str]()
        api.fates["evict"] = [replaced("web-b", "web", 10, "n2")]
        outcome = applied(api, plan, told=told)
        assert [each.replacement for each in outcome.done] == ["team/web-b"]
        assert told == ["1/1 team/web-a was evicted; team/web-b is on GPU 0 of n2"]
        assert outcome.sentence == "GPU 0 of n1 has room: a whole GPU"
        assert is_open(api)

    def test_cards_are_drained_while_the_pod_is_evicted(self, api: FakeApi):
        plan, seen = planned(api, for_whole), list[Mapping[str, str]]()

        async def fate(there: FakeApi, act: Callable[[], None]) -> None:
            seen.append(dict(there.raw(NODES, "n1")["metadata"]["annotations"]))
            await replaced("web-b", "web", 10, "n2")(there, act)

        api.fates["evict"] = [fate]
        applied(api, plan)
        assert seen[0][names.DRAINED] == card_of("n1", 0)
        assert json.loads(seen[0][names.DEFRAG])["cards"] == [card_of("n1", 0)]

    def test_it_waits_until_the_pod_starts_for_which_the_room_is(self, api: FakeApi):
        plan = planned(api)
        api.fates["evict"] = [replaced("web-b", "web", 10, "n2")]
        with pytest.raises(Stopped, match="team/big does not start"):
            applied(api, plan, timeout=0.1)
        assert is_open(api)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda api: api.remove(PODS, "web-a", "team"), "team/web-a is gone"),
            (lambda api: api.put(PODS, owned("web-a", "web", 10, "n1", uid="another"), "team"), "is gone"),
            (
                lambda api: api.put(
                    PODS, owned("web-a", "web", 10, "n1", annotations={_SAFE: "false"}), "team"
                ),
                "is kept by its annotation",
            ),
            (
                lambda api: api.put(PODS, owned("new", "new", 60, "n2"), "team"),
                "there is no place any more for team/web-a",
            ),
            (
                lambda api: api.put(PODS, owned("new", "new", 5, "n1"), "team"),
                "the moves would not open a whole GPU any more",
            ),
            (
                lambda api: api.put(NODES, {**api.raw(NODES, "n2"), "spec": {"unschedulable": True}}),
                "there is no place any more for team/web-a",
            ),
        ],
        ids=["gone", "another", "kept", "full", "taken", "cordoned"],
    )
    def test_it_stops_before_the_eviction_if_the_ledger_does_not_agree_any_more(self, api, change, said):
        plan = planned(api, for_whole)
        change(api)
        with pytest.raises(Stopped, match=said) as stopped:
            applied(api, plan)
        assert "stopped after 0 of 1 evictions" in str(stopped.value)
        assert stopped.value.exit_code == 3
        assert not api.count("evict")
        assert is_open(api)

    def test_the_api_server_keeps_a_budget_that_we_have_not_seen(self, api: FakeApi):
        plan = planned(api, for_whole)
        api.fates["evict"] = [refused(TooManyRequests("it would violate the budget", code=429))]
        with pytest.raises(Stopped, match="may not be evicted now"):
            applied(api, plan)
        assert is_open(api)

    def test_an_eviction_without_an_answer_is_not_called_undone(self, api: FakeApi):
        plan = planned(api, for_whole)
        api.fates["evict"] = [lost()]
        with pytest.raises(Stopped, match="may have been evicted"):
            applied(api, plan)
        assert is_open(api)

    def test_it_stops_if_no_other_pod_appears_or_that_has_no_place(self, api: FakeApi):
        async def ends(there: FakeApi, act: Callable[[], None]) -> None:
            act()
            there.remove(PODS, "web-a", "team")

        async def pending(there: FakeApi, act: Callable[[], None]) -> None:
            await ends(there, act)
            body = owned("web-b", "web", 10, "")
            there.put(PODS, body, "team")

        plan = planned(api, for_whole)
        for fate, said in ((ends, "has made no other pod"), (pending, "team/web-b, in place of team/web-a")):
            api.put(PODS, owned("web-a", "web", 10, "n1"), "team")
            api.fates["evict"] = [fate]
            with pytest.raises(Stopped, match=said):
                applied(api, plan, timeout=0.1)
            assert is_open(api)

    def test_a_replacement_elsewhere_is_told_and_does_no_harm(self, api: FakeApi):
        api.put(NODES, raw(node("n3", [80 * GI], drained=(0,))))
        plan, told = planned(api, for_whole), list[str]()
        api.fates["evict"] = [replaced("web-b", "web", 10, "n3")]
        applied(api, plan, told=told)
        assert told == ["1/1 team/web-a was evicted; team/web-b is on GPU 0 of n3 (planned: GPU 0 of n2)"]

    def test_it_stops_if_the_room_is_taken_by_another_at_the_end(self, api: FakeApi):
        async def fate(there: FakeApi, act: Callable[[], None]) -> None:
            await replaced("web-b", "web", 10, "n2")(there, act)
            there.put(PODS, owned("thief", "thief", 1, "n1"), "team")

        plan = planned(api, for_whole)
        api.fates["evict"] = [fate]
        with pytest.raises(Stopped, match="somebody took it"):
            applied(api, plan)

    def test_a_command_that_was_killed_is_cleaned_up_after_and_one_at_work_is_left_alone(self, api: FakeApi):
        cards = {"n2": frozenset({card_of("n2", 0)})}

        async def closed(at: float, before: dict[str, frozenset[str]] | None = None) -> None:
            await Closing(api, 60.0, lambda: at, closed=dict(before or {})).set(cards)  # type: ignore[arg-type]

        plan = planned(api, for_whole)
        asyncio.run(closed(WALL - 10))
        assert any("that is at work" in note for note in planned(api, for_whole).notes)
        with pytest.raises(AnotherWorks, match="of n2"):
            applied(api, plan)
        assert api.raw(NODES, "n2")["metadata"]["annotations"][names.DRAINED] == card_of("n2", 0)
        with pytest.raises(AnotherWorks, match="of n2"):
            asyncio.run(closed(WALL - 20))
        asyncio.run(closed(WALL - 100, cards))
        assert any("that was killed" in note for note in planned(api, for_whole).notes)
        told = list[str]()
        api.fates["evict"] = [replaced("web-b", "web", 10, "n2")]
        applied(api, plan, told=told)
        assert told[0] == "GPUs of n2, left drained by a command that was killed, are in service again"
        assert is_open(api)

    def test_a_card_that_somebody_drained_stays_drained(self, api: FakeApi):
        api.put(NODES, raw(node("n1", [80 * GI, 80 * GI], drained=(1,))))
        plan = planned(api, for_whole)
        api.fates["evict"] = [replaced("web-b", "web", 10, "n2")]
        applied(api, plan)
        assert api.raw(NODES, "n1")["metadata"]["annotations"][names.DRAINED] == card_of("n1", 1)

    def test_a_card_of_a_moved_pod_that_somebody_drained_stays_drained(self, api: FakeApi):
        api.put(NODES, raw(node("n1", [80 * GI, 80 * GI], drained=(1,))))
        both = frozenset({card_of("n1", 0), card_of("n1", 1)})
        drained = list[str]()

        async def work() -> None:
            closing = Closing(api, 60.0, lambda: WALL)  # type: ignore[arg-type]
            for cards in ({"n1": both}, {"n1": both}, {}):
                await closing.set(cards)
                drained.append(api.raw(NODES, "n1")["metadata"]["annotations"][names.DRAINED])
                assert closing.closed == ({"n1": both - {card_of("n1", 1)}} if cards else {})

        asyncio.run(work())
        assert drained == [",".join(sorted(both))] * 2 + [card_of("n1", 1)]


def test_moves_under_one_budget_wait_until_it_allows_the_next():
    api = fragmented(owned("web-c", "web", 10, "n1"))
    api.put(PODS, owned("db-a", "db", 20, "n2", annotations={_SAFE: "false"}), "team")

    def budget(allowed: int) -> None:
        api.put(
            POD_DISRUPTION_BUDGETS,
            {
                "metadata": {"name": "web", "generation": 1},
                "spec": {"selector": {"matchLabels": {"app": "web"}}},
                "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
            },
            "team",
        )

    async def first(there: FakeApi, act: Callable[[], None]) -> None:
        await replaced("web-x", "web", 10, "n2")(there, act)
        budget(0)
        asyncio.get_running_loop().call_later(0.7, budget, 1)

    allowed = list[int]()

    async def second(there: FakeApi, act: Callable[[], None]) -> None:
        found = there.raw(POD_DISRUPTION_BUDGETS, "web", "team")
        allowed.append(found["status"]["disruptionsAllowed"])
        await replaced("web-y", "web", 10, "n2")(there, act)

    budget(1)
    plan = planned(api, for_whole)
    assert [step.budget for step in plan.steps] == ["web", "web"]
    api.fates["evict"] = [first, second]
    applied(api, plan, timeout=5.0)
    assert allowed == [1]


_SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
