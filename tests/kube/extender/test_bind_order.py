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


def test_however_many_binds_are_under_way_the_next_choice_goes_on_while_they_are_quick():
    async def main(_, order):
        for number in range(10 * bind_order.AT_ONCE):
            assert not order.must_wait()
            order.begun(f"p{number}")

    run(main)


def test_while_many_binds_take_long_the_next_choice_waits_until_the_first_of_them_has_ended():
    async def main(_, order):
        first, *_ = [order.begun(f"p{number}") for number in range(bind_order.AT_ONCE)]
        await asyncio.sleep(bind_order.SLOW / 2)
        second = order.begun("later")
        await asyncio.sleep(bind_order.SLOW / 2)
        assert order.must_wait()
        asyncio.get_running_loop().call_later(0.05, order.ended, second)
        assert bind_order.OTHER_BINDS <= await waited(order) < 2 * bind_order.OTHER_BINDS, (
            "kube-scheduler must not give up"
        )
        asyncio.get_running_loop().call_later(0.2, order.ended, first)
        assert 0.19 < await waited(order) < 0.3
        assert not order.must_wait()

    run(main)


def test_few_binds_may_take_long():
    async def main(_, order):
        for number in range(bind_order.AT_ONCE - 1):
            order.begun(f"p{number}")
        await asyncio.sleep(10 * bind_order.SLOW)
        assert not order.must_wait()

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
