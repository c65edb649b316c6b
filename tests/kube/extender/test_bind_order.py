"""A choice knows of the one before it, and kube-scheduler does not choose faster than pods are bound."""

import asyncio

from kube import virtual_time

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.dialects.pod_grant import PodGrant, SlotGrant
from cotenant.kube.extender import bind_order
from cotenant.kube.extender.bind_order import BindOrder
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger


def run(main):
    async def whole():
        cluster = ClusterLedger()
        cluster.set_node("n1", [GPU("GPU-0", 0, "T4", 2**34)], {})
        await main(cluster, BindOrder(cluster))

    virtual_time.run(whole())


async def waited(order: BindOrder) -> float:
    """Seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    if order.must_wait():
        await order.wait()
    return loop.time() - began


def charge(cluster: ClusterLedger, uid: str) -> None:
    cluster.charge("n1", PodGrant(uid, (SlotGrant("main", (Share("GPU-0", 2**30),)),)))


def test_a_choice_waits_until_the_pod_before_it_is_charged():
    async def main(cluster, order):
        assert await waited(order) == 0
        order.chosen("a")
        seen = []

        async def next_choice():
            await waited(order)
            seen.append(cluster.charged("a") is not None)

        choosing = asyncio.create_task(next_choice())
        await asyncio.sleep(0.001)
        order.begun("another")
        await asyncio.sleep(0.001)
        assert not choosing.done()
        order.begun("a")
        charge(cluster, "a")
        await choosing
        assert seen == [True]
        assert await waited(order) == 0

    run(main)


def test_a_bind_that_came_before_is_not_waited_for():
    async def main(cluster, order):
        order.chosen("a")
        order.begun("a")
        charge(cluster, "a")
        assert await waited(order) == 0

    run(main)


def test_a_bind_that_never_comes_is_waited_for_once_and_not_long():
    async def main(_, order):
        order.chosen("a")
        assert 0 < await waited(order) <= 2 * bind_order.NEXT_BIND
        assert await waited(order) == 0

    run(main)


def test_while_many_binds_are_under_way_the_next_choice_waits_until_one_has_ended():
    async def main(_, order):
        for number in range(bind_order.AT_ONCE):
            assert not order.must_wait()
            order.begun(f"p{number}")
        asyncio.get_running_loop().call_later(0.2, order.ended)
        assert 0.2 <= await waited(order) < 0.3
        order.begun("one more")
        assert bind_order.OTHER_BINDS <= await waited(order) < 2 * bind_order.OTHER_BINDS, (
            "kube-scheduler must not give up"
        )

    run(main)


def test_a_choice_that_is_given_up_leaves_nothing_behind():
    async def main(_, order):
        order.chosen("a")
        choosing = asyncio.create_task(order.wait())
        await asyncio.sleep(0)
        choosing.cancel()
        await asyncio.wait([choosing])
        assert not order._waiting

    run(main)
