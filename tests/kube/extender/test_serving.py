"""The extender over HTTP: who may answer, and with which status."""

import asyncio
import json
import logging

import pytest
from aiohttp.test_utils import TestClient, TestServer
from kube.builders import GI, node_json, pod_json
from kube.world import World
from prometheus_client import CollectorRegistry

from cotenant.dialects import names
from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.registry import Dialects
from cotenant.kube.extender.serving import Extender

VERBS = ("filter", "choose", "prioritize", "prioritize-without-gpu", "preempt", "bind")
PREFIXES = ("", "/gpushare-scheduler")


def served(main, at: World | None = None) -> None:
    async def whole():
        here = at or World()
        here.ready = None
        here.registry = CollectorRegistry()
        extender = Extender(here.decider, here.binder, lambda: here.ready, here.registry)
        async with TestClient(TestServer(extender.app())) as http:
            await main(here, http)

    asyncio.run(whole())


def cluster(**how) -> World:
    at = World(**how)
    at.api.add_node(node_json("n1", 16, 16))
    at.api.add(pod_json("a", "4Gi"))
    return at


def bind_args(name="a", node="n1"):
    return {"PodName": name, "PodNamespace": "web", "PodUID": f"uid-{name}", "Node": node}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_way_of_a_pod(prefix):
    async def main(at, http):
        args = {"Pod": pod_json("a"), "Nodes": None, "NodeNames": ["n1", "n2"]}
        answer = await http.post(f"{prefix}/filter", json=args)
        assert answer.status == 200
        assert answer.content_type == "application/json"
        said = await answer.json()
        assert said["NodeNames"] == ["n1"]
        assert list(said["FailedAndUnresolvableNodes"]) == ["n2"]
        answer = await http.post(f"{prefix}/choose", json=args)
        assert (await answer.json())["NodeNames"] == ["n1"]
        answer = await http.post(f"{prefix}/prioritize", json={**args, "NodeNames": ["n1"]})
        assert await answer.json() == [{"Host": "n1", "Score": 10}]
        answer = await http.post(f"{prefix}/bind", json=bind_args())
        assert (answer.status, await answer.json()) == (200, {"Error": ""})
        assert at.api.truth("a").spec.node_name == "n1"

    served(main, cluster())


def test_two_pods_are_not_promised_the_same_room_however_their_requests_arrive():
    """kube-scheduler asks about the second while the bind of the first is on its way."""

    async def main(at, http):
        at.api.add_node(node_json("n2", 16))
        for name in ("b", "c"):
            at.api.add(pod_json(name, "16Gi", annotations={names.PLACEMENT: "binpack"}))
        both = {"Nodes": None, "NodeNames": ["n1", "n2"]}

        async def choose(name):
            pod = pod_json(name, "16Gi", annotations={names.PLACEMENT: "binpack"})
            answer = await http.post("/choose", json={"Pod": pod, **both})
            return (await answer.json())["NodeNames"]

        assert await choose("b") == ["n2"]
        second = asyncio.create_task(choose("c"))
        await asyncio.sleep(0.002)
        assert (await (await http.post("/bind", json=bind_args("b", "n2"))).json()) == {"Error": ""}
        assert await second == ["n1"]

    served(main, cluster())


@pytest.mark.parametrize("prefix", PREFIXES)
def test_who_does_not_lead_says_so(prefix):
    async def main(at, http):
        at.ready = "this server does not lead: other does"
        for verb in VERBS:
            answer = await http.post(f"{prefix}/{verb}", data=b"nonsense")
            assert answer.status == 503
            assert await answer.json() == {"Error": at.ready}
        for path in ("/gpushare-scheduler/inspect", "/gpushare-scheduler/inspect/n1", "/healthz"):
            answer = await http.get(path)
            assert answer.status == 503
            assert at.ready in await answer.text()
        assert at.api.calls == []

    served(main, cluster())


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"\xff", b"{" * 10_000, b'{"Pod": {}}'])
def test_what_is_malformed_is_a_bad_request(body, caplog):
    async def main(at, http):
        for verb in VERBS:
            answer = await http.post(f"/{verb}", data=body)
            assert answer.status == 400, verb
            assert (await answer.json())["Error"]
        assert len(at.line) == 0

    served(main, cluster())
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_bind_that_fails_is_an_answer_with_an_error():
    async def main(at, http):
        for args, why in (
            (bind_args(node="n9"), "no room"),
            (bind_args("never-made"), "never-made"),
        ):
            answer = await http.post("/bind", json=args)
            assert answer.status == 200
            assert why in (await answer.json())["Error"]
        at.api.change("a", lambda it: it["metadata"]["annotations"].update({names.PLACEMENT: "nonsense"}))
        answer = await http.post("/bind", json=bind_args())
        assert answer.status == 200
        assert names.PLACEMENT in (await answer.json())["Error"]
        at.lead.seconds = 0
        answer = await http.post("/bind", json=bind_args())
        assert (answer.status, await answer.json()) == (200, {"Error": "not ours now"})

    served(main, cluster())


def test_what_nobody_foresaw_is_logged_and_said_to_be_ours(monkeypatch, caplog):
    async def main(at, http):
        def broken(*_):
            raise ZeroDivisionError("a bug")

        for name in ("filter", "choose", "prioritize", "prioritize_without_gpu", "preempt"):
            monkeypatch.setattr(at.decider, name, broken)
        monkeypatch.setattr(at.binder, "bind", broken)
        bodies = {verb: {"Pod": pod_json("a"), "NodeNames": ["n1"]} for verb in VERBS} | {"bind": bind_args()}
        for verb in VERBS:
            with caplog.at_level(logging.ERROR):
                answer = await http.post(f"/{verb}", json=bodies[verb])
            assert answer.status == 500
            said = (await answer.json())["Error"]
            assert "a bug" not in said
            assert "log" in said
        assert sum("ZeroDivisionError" in (record.exc_text or "") for record in caplog.records) == len(VERBS)

    served(main, cluster())


def test_five_thousand_nodes_in_a_body():
    async def main(at, http):
        for i in range(20):
            at.api.add_node(node_json(f"node-{i}", 16))
        every = [f"node-{i}" for i in range(5000)]
        for key in ("NodeNames", "nodenames"):
            answer = await http.post("/filter", json={"Pod": pod_json("a"), key: every})
            said = await answer.json()
            assert said["NodeNames"] == every[:20]
            assert len(said["FailedAndUnresolvableNodes"]) == 4980

    served(main, cluster())


def test_other_methods_and_paths_are_refused():
    async def main(at, http):
        assert (await http.get("/filter")).status == 405
        assert (await http.post("/nothing")).status == 404
        assert (await http.post("/gpushare-scheduler/inspect")).status == 405

    served(main, cluster())


def test_how_long_answers_take_is_counted():
    async def main(at, http):
        await http.post("/filter", json={"Pod": pod_json("a"), "NodeNames": ["n1"]})
        await http.post("/filter", data=b"")
        count = at.registry.get_sample_value("cotenant_scheduler_decision_seconds_count", {"verb": "filter"})
        assert count == 2

    served(main, cluster())


def test_inspect_answers_as_gpushare_does():
    async def main(at, http):
        at.api.add(pod_json("small", "1Gi"))
        await at.bind("a")
        await at.bind("small")
        for path in ("/gpushare-scheduler/inspect", "/gpushare-scheduler/inspect/n1"):
            said = await (await http.get(path)).json()
            assert set(said) == {"nodes"}
            (node,) = said["nodes"]
            assert {key: node[key] for key in ("name", "totalGPU", "usedGPU")} == {
                "name": "n1",
                "totalGPU": 32,
                "usedGPU": 5,
            }
            assert [(dev["id"], dev["totalGPU"]) for dev in node["devs"]] == [(0, 16), (1, 16)]
            assert sum(dev["usedGPU"] for dev in node["devs"]) == 5
            pods = [pod for dev in node["devs"] for pod in dev["pods"]]
            assert sorted((pod["name"], pod["namespace"], pod["usedGPU"]) for pod in pods) == [
                ("a", "web", 4),
                ("small", "web", 1),
            ]
        answer = await http.get("/gpushare-scheduler/inspect/n9")
        assert answer.status == 404
        assert (await answer.json())["nodes"] == []

    served(main, cluster())


def test_inspect_counts_in_the_unit_of_the_dialect_and_never_more_than_a_card():
    async def main(at, http):
        card = 7606 * 2**20
        node = node_json("n1", 7)
        told = json.loads(node["metadata"]["annotations"][names.GPUS])
        told["cards"][0]["memory"] = card
        node["metadata"]["annotations"][names.GPUS] = json.dumps(told)
        at.api.add_node(node)
        at.api.add(pod_json("whole", None, **{names.GPU: "1"}))
        await at.bind("whole")
        (found,) = (await (await http.get("/gpushare-scheduler/inspect")).json())["nodes"]
        unit = at.dialects.aliyun.bytes_each
        assert found["totalGPU"] == found["usedGPU"] == card // unit

    for unit in ("GiB", "MiB"):
        served(main, World(dialects=Dialects(aliyun=Aliyun(unit=unit))))


def test_a_charge_whose_pod_is_not_seen_is_shown_by_uid():
    async def main(at, http):
        at.api.at_once = False
        at.api.add(pod_json("b", "2Gi"))
        await at.bind("b")
        (node,) = (await (await http.get("/gpushare-scheduler/inspect")).json())["nodes"]
        assert [pod for dev in node["devs"] for pod in dev["pods"]] == [
            {"name": "uid-b", "namespace": "", "usedGPU": 2}
        ]
        assert at.cluster.ledger("n1").totals().granted == 2 * GI

    served(main, cluster())
