"""Pods come and go, requests are lost or late, the watch lags and breaks, terms change: no card is ever over-granted,
and in the end exactly what runs is charged.
"""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from random import Random

import pytest
from kube import virtual_time
from kube.builders import GI, node_json, pod_json
from kube.world import World

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.dialects.pod_grant import read_grant
from cotenant.kube.api.errors import Conflict, Forbidden, NotFound, Unreachable
from cotenant.kube.api.resources import PODS
from cotenant.kube.extender.messages import Args

CARDS = {"n1": (16, 16), "n2": (8, 16), "n3": (4,)}
SECONDS = 120.0


class Chaos:
    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        self.random = Random(seed)
        self.at = World(clock=loop.time, wall=lambda: 1.9e9 + loop.time())
        self.api = self.at.api
        self.api.at_once = False
        self.faults = True
        self.most = Counter[str]()
        self.over_granted: list[str] = []
        for name, cards in CARDS.items():
            self.api.add_node(node_json(name, *cards))
        self.sizes = {
            f"GPU-{name}-{i}": size * GI for name, cards in CARDS.items() for i, size in enumerate(cards)
        }
        for verb in ("bind", "patch", "get"):
            self.api.fates[verb] = _Endless(self.fate)
        self.tasks: set[asyncio.Task] = set()
        self.made = self.served = 0

    async def fate(self, api, act) -> None:
        """What becomes of a request; whatever it does to the API server is audited at once."""
        kind = self.random.choice(("well", "well", "lost", "never", "late", "refused", "slow", "conflict"))
        await asyncio.sleep(self.random.random() / 10)
        if not self.faults or kind in {"well", "slow"}:
            if self.faults and kind == "slow":
                await asyncio.sleep(self.random.random() * 3)
            return self.act(act)
        if kind == "refused":
            raise Forbidden("no", code=403)
        if kind == "conflict":
            raise Conflict("try again", code=409)
        if kind == "lost":
            self.act(act)
        elif kind == "late":
            asyncio.get_running_loop().call_later(self.random.random() * 3, self.act_late, act)
        raise Unreachable("not in time", uncertain=True)

    def act(self, act) -> None:
        act()
        self.audit()

    def act_late(self, act) -> None:
        with suppress(Conflict, NotFound):
            self.act(act)

    def truth(self) -> dict[str, str]:
        """UID to node of those that hold a grant, as the API server has them."""
        return {
            body["metadata"]["uid"]: body["spec"]["nodeName"]
            for body in self.api.all(PODS).values()
            if body["spec"]["nodeName"] and body["status"]["phase"] not in {"Succeeded", "Failed"}
        }

    def audit(self) -> None:
        used = Counter[str]()
        for body in self.api.all(PODS).values():
            if body["metadata"]["uid"] in self.truth():
                grant = read_grant(body["metadata"]["annotations"][names.GRANT], body["metadata"]["uid"])
                for slot in grant.slots:
                    for share in slot.shares:
                        used[share.uuid] += share.memory
        for card, size in used.items():
            if size > self.sizes[card]:
                self.over_granted.append(card)
            self.most[card] = max(self.most[card], size)

    def spawn(self, work) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def people(self) -> None:
        while self.faults:
            await asyncio.sleep(self.random.random() / 3)
            name = f"p{self.random.randrange(25)}"
            if not self.api.has(PODS, name, "web"):
                self.made += 1
                size = self.random.choice(("1Gi", "3Gi", "4Gi", "8Gi", "16Gi"))
                self.api.add(pod_json(name, size, uid=f"uid-{self.made}", priority=self.random.randrange(3)))
            elif self.random.random() < 0.4:
                self.api.drop(name)
            elif self.random.random() < 0.2:
                self.api.change(name, lambda it: it["status"].update(phase="Succeeded"))
            else:
                self.api.change(name, lambda it: it["status"].update(message="touched"))

    async def scheduler(self) -> None:
        while True:
            await asyncio.sleep(self.random.random() / 10)
            waiting = [name for name, body in self.api.all(PODS).items() if not body["spec"]["nodeName"]]
            if waiting and self.at.lead.seconds > 0:
                pod = self.api.truth(self.random.choice(waiting))
                answer = json.loads(self.at.decider.filter(Args(pod, node_names=list(CARDS))))
                if answer["NodeNames"]:
                    self.spawn(self.bind(pod, self.random.choice(answer["NodeNames"])))

    async def bind(self, pod, node: str) -> None:
        with suppress(CotenantError):
            await self.at.bind(pod, node)
            self.served += 1

    async def watch(self) -> None:
        """It lags, and sometimes breaks: then only a list tells what there is."""
        while True:
            await asyncio.sleep(self.random.random() / 2)
            if self.faults and self.random.random() < 0.05:
                self.api.relist()
            else:
                for _ in range(self.random.randrange(1 + len(self.api._waiting))):
                    self.api._waiting.pop(0)()

    async def terms(self) -> None:
        while self.faults:
            await asyncio.sleep(self.random.uniform(5, 30))
            self.at.lead.seconds = 0
            await asyncio.sleep(self.random.uniform(5, 8))
            unseen = self.at.feed.unseen()
            self.api.relist()
            self.at.feed.forget_unseen(unseen)
            self.at.line.refill()
            self.at.lead.seconds = 1e9

    async def relist(self) -> None:
        self.api.relist()

    async def run(self) -> None:
        works = (self.people(), self.scheduler(), self.watch(), self.terms(), self.at.line.run())
        running = [asyncio.create_task(work) for work in (*works, self.at.feed.recount(self.relist))]
        await asyncio.sleep(SECONDS)
        self.faults = False
        await asyncio.sleep(SECONDS)
        for task in running:
            if task.done():
                task.result()
            task.cancel()
        while self.tasks:
            await asyncio.wait(self.tasks)
        await self.at.settled()
        self.api.deliver()


class _Endless(list):
    """Every request meets the same chance."""

    def __init__(self, fate) -> None:
        super().__init__([fate])

    def pop(self, index=-1):
        return self[index]


@pytest.mark.parametrize("seed", range(3))
def test_no_card_is_over_granted_and_nothing_leaks(seed):
    async def main():
        chaos = Chaos(seed)
        await chaos.run()
        at = chaos.at
        assert chaos.over_granted == []
        assert at.charged() == chaos.truth()
        assert at.feed.under_way == set()
        assert at.binder._doubts == {}
        assert chaos.served > 50, "something happened"
        assert any(chaos.most[card] == size for card, size in chaos.sizes.items()), "cards were full at times"
        waiting = {
            body["metadata"]["uid"] for body in chaos.api.all(PODS).values() if not body["spec"]["nodeName"]
        }
        assert set(at.line._places) <= waiting
        assert set(at.cluster.holds()) <= waiting

    virtual_time.run(main())
