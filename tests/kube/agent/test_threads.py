"""Work that may never return is done in threads of their own, which are used again when it has returned."""

import asyncio
import threading

import pytest

from cotenant.kube.agent.threads import in_thread

pytestmark = pytest.mark.asyncio


async def test_a_thread_that_has_returned_is_used_again():
    first = await in_thread(threading.current_thread)
    await asyncio.sleep(0.05)
    assert await in_thread(threading.current_thread) is first
    assert first.daemon


async def test_one_that_hangs_keeps_nobody_waiting():
    go_on = threading.Event()
    hanging = in_thread(go_on.wait)
    other = await asyncio.wait_for(in_thread(threading.current_thread), 10)
    assert not hanging.done()
    go_on.set()
    assert await asyncio.wait_for(hanging, 10) is True
    assert other.daemon


async def test_what_fails_is_raised_where_it_is_waited_for_and_the_thread_goes_on():
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_thread(fail)
    assert await in_thread(lambda: 5) == 5
