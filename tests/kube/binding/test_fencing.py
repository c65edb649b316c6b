"""Pods are fenced against Bindings that may still arrive; one that cannot be changed does not stop the others."""

import asyncio

import pytest
from kube.binding.bindings import bound_and_charged, neither_bound_nor_charged, world
from kube.builders import pod_json
from kube.fakeapi import lost, refused, withheld
from kube.virtual_time import run

from cotenant.dialects import names
from cotenant.kube.api.errors import Conflict, Forbidden, Invalid, KubeError, ServerFailed, Unreachable
from cotenant.kube.binding.binder import Binder, NotBound
from cotenant.kube.binding.fencing import BINDING_OVER, fence_all

DENIED = [
    pytest.param(
        Invalid("annotations: Too long: may not be more than 262144 bytes", code=422), id="too long"
    ),
    pytest.param(Forbidden("ValidatingAdmissionPolicy 'frozen' denied request", code=403), id="policy"),
    pytest.param(KubeError("a webhook's own code", code=451), id="odd code"),
    pytest.param(ServerFailed("failed calling webhook", code=500, uncertain=True), id="webhook away"),
    pytest.param(Unreachable("not in time", uncertain=True), id="webhook hangs"),
]


class Fenced:
    """What a fence found, and when."""

    def __init__(self, at, *, leads=lambda: True):
        self.at, self.leads = at, leads
        self.seen, self.refused, self.left = {}, {}, []

    async def all(self):
        pods = list(self.at.api.pods)
        await fence_all(self.at.api, pods, self._see, self.leads, lambda *left: self.left.append(left))
        return asyncio.get_running_loop().time()

    def _see(self, uid, now, refused):
        self.seen[uid] = now
        if refused is not None:
            self.refused[uid] = str(refused)


def deny(at, name, error):
    """The API server refuses every patch of this pod."""
    patch = at.api.merge_patch

    async def denied(resource, named, *args, **kwargs):
        if named == name:
            at.api.calls.append(("patch", "pods", named))
            raise error
        return await patch(resource, named, *args, **kwargs)

    at.api.merge_patch = denied
    return lambda: setattr(at.api, "merge_patch", patch)


def test_a_bindings_own_time_is_over_by_then():
    assert Binder.within < BINDING_OVER


@pytest.mark.parametrize("error", DENIED)
def test_a_pod_that_cannot_be_changed_is_given_up_when_its_bindings_time_is_over(error):
    async def main():
        at = world(16, a="4Gi", b="4Gi", c="4Gi")
        deny(at, "b", error)
        fence = Fenced(at)
        took = await fence.all()
        assert set(fence.seen) == {"uid-a", "uid-b", "uid-c"}
        assert fence.refused == {"uid-b": str(error)}
        assert BINDING_OVER <= took < 30
        assert at.api.calls[-1] == ("get", "pods", "b"), "what it is then is read by quorum"
        assert fence.left[0] == (1, fence.left[0][1])
        assert str(fence.left[0][1]) == str(error), "and meanwhile it is said why"
        assert fence.left[-1] == (0, None)

    run(main())


def test_a_thousand_of_them_wait_together():
    async def main():
        at = world(16, **{f"p{i}": "4Gi" for i in range(1000)})
        at.api.fails["patch"] = Invalid("denied", code=422)
        fence = Fenced(at)
        took = await fence.all()
        assert len(fence.refused) == 1000
        assert took < 30

    run(main())


def test_a_webhook_that_hangs_does_not_cost_its_whole_time_for_each_of_many():
    async def main():
        at = world(16, **{f"p{i}": "4Gi" for i in range(320)})

        async def hangs(*_, within, **__):
            await asyncio.sleep(within)
            raise Unreachable("not in time", uncertain=True)

        at.api.merge_patch = hangs
        fence = Fenced(at)
        took = await fence.all()
        assert len(fence.refused) == 320
        assert took < 10 * 2 * BINDING_OVER, "ten turns of 32, and each pod twice"

    run(main())


def test_a_binding_that_arrives_while_it_is_waited_for_is_found():
    async def main():
        at = world(16, a="4Gi")
        late = []
        at.api.fates["bind"] = [withheld(late)]
        at.api.fails["patch"] = Invalid("denied", code=422)
        with pytest.raises(Unreachable):
            await at.bind("a")
        await asyncio.sleep(BINDING_OVER / 2)
        assert at.charged() == {"uid-a": "n1"}
        late[0]()
        await at.settled()
        bound_and_charged(at)
        assert at.feed.unfenced == {}, "what is bound cannot be bound again"

    run(main())


def test_a_change_by_anybody_else_is_a_fence():
    async def main():
        at = world(16, a="4Gi")
        pods = list(at.api.pods)
        at.api.fails["patch"] = Invalid("denied", code=422)
        at.api.change("a", lambda it: it["status"].update(message="kube-scheduler was here"))
        seen = []
        await fence_all(at.api, pods, lambda *what: seen.append(what), lambda: True)
        ((uid, now, refusal),) = seen
        assert (uid, now.status.phase, refusal) == ("uid-a", "Pending", None)
        assert asyncio.get_running_loop().time() < 1

    run(main())


def test_while_the_api_server_does_not_answer_reads_either_nothing_is_given_up():
    """It may be stopped, with the Binding in its buffers: its time limit has not begun yet."""

    async def main():
        at = world(16, a="4Gi")
        at.api.fails |= {"patch": Unreachable("no answer", uncertain=True), "get": Unreachable("no answer")}
        fence = Fenced(at)
        task = asyncio.create_task(fence.all())
        await asyncio.sleep(300)
        assert fence.seen == {}
        del at.api.fails["get"]
        began = asyncio.get_running_loop().time()
        assert await task - began >= BINDING_OVER
        assert set(fence.refused) == {"uid-a"}

    run(main())


def test_without_the_lease_a_fence_ends_and_says_nothing():
    async def main():
        at = world(16, a="4Gi", b="4Gi")
        at.api.fails["patch"] = Invalid("denied", code=422)
        leads = [True]
        fence = Fenced(at, leads=lambda: leads[0])
        task = asyncio.create_task(fence.all())
        await asyncio.sleep(2)
        leads[0] = False
        await task
        assert fence.seen == {}

    run(main())


@pytest.mark.parametrize("error", DENIED)
def test_a_bind_in_doubt_of_such_a_pod_gives_its_charge_back_in_the_end(error):
    async def main():
        at = world()
        deny(at, "a", error)
        at.api.fates["bind"] = [lost(before=True)]
        with pytest.raises(Unreachable):
            await at.bind("a")
        await asyncio.sleep(BINDING_OVER - 0.5)
        assert at.charged() == {"uid-a": "n1"}, "it may still arrive"
        await at.settled()
        neither_bound_nor_charged(at)

    run(main())


def test_such_a_pod_is_not_bound_until_it_can_be_changed():
    async def main():
        at = world(16, a="4Gi", b="4Gi")
        allow = deny(at, "a", Forbidden("policy frozen denied it", code=403))
        late = []
        at.api.fates["bind"] = [withheld(late)]
        with pytest.raises(Unreachable):
            await at.bind("a")
        await at.settled()
        with pytest.raises(NotBound, match=r"cannot be changed.*policy frozen denied it"):
            await at.bind("a")
        await at.bind("b")
        bound_and_charged(at, "b")
        allow()
        await at.bind("a")
        bound_and_charged(at)
        with pytest.raises(Conflict):
            late[0]()

    run(main())


def test_such_a_pod_is_bound_when_anybody_has_changed_it():
    async def main():
        at = world()
        deny(at, "a", Forbidden("no", code=403))
        at.api.fates["bind"] = [lost(before=True)]
        with pytest.raises(Unreachable):
            await at.bind("a")
        await at.settled()
        at.api.at_once = False  # the watch lags
        at.api.change("a", lambda it: it["status"].update(message="kube-scheduler was here"))
        await at.bind("a")
        at.api.deliver()
        bound_and_charged(at)

    run(main())


def test_such_a_pod_that_is_gone_is_forgotten():
    async def main():
        at = world()
        at.api.fails["patch"] = Forbidden("no", code=403)
        at.api.fates["bind"] = [lost(before=True)]
        with pytest.raises(Unreachable):
            await at.bind("a")
        await at.settled()
        assert set(at.feed.unfenced) == {"uid-a"}
        at.api.drop("a")
        assert at.feed.unfenced == {}
        at.api.add(pod_json("a", uid="second"))
        await at.bind("a")
        bound_and_charged(at)
        assert names.RETRY not in at.api.truth("a").metadata.annotations

    run(main())


def test_a_refusal_that_passes_is_no_refusal():
    async def main():
        at = world(16, a="4Gi")
        at.api.fates["patch"] = [refused(Forbidden("for a moment", code=403))] * 3
        fence = Fenced(at)
        assert await fence.all() < BINDING_OVER
        assert fence.refused == {}
        assert names.RETRY in fence.seen["uid-a"].metadata.annotations

    run(main())
