"""A login that takes long: its time is not the request's."""

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import pytest
from kube.replay import QUICK, fails, pod, replaying, says

from cotenant.kube.api.auth.credentials import Credential
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NoCredential
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import PODS

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("route")]


class SlowLogin:
    """A credential that takes its time, as where a person has to log in."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.given, self.refused = seconds, 0, False

    async def current(self) -> Credential:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        self.given += 1
        self.seconds = 0.0
        return Credential(token=f"t{int(self.refused)}")

    def rejected(self, credential: Credential) -> None:
        self.refused, self.seconds = True, 0.6


SHORT = dataclasses.replace(QUICK, request=0.4)


@asynccontextmanager
async def logging_in(server, seconds):
    slow = dataclasses.replace(server.access, credentials=SlowLogin(seconds))
    async with Client(slow, SHORT) as client:
        yield client


@pytest.mark.parametrize("within", [None, 0.4])
async def test_a_login_slower_than_a_read_may_last_does_not_count(within):
    async with replaying(says(pod("a", 1))) as server, logging_in(server, 1.0) as client:
        assert (await client.get(PODS, "a", "web", within=within)).metadata.name == "a"


async def test_a_login_slower_than_a_write_without_a_limit_may_last_does_not_count():
    async with replaying(says(pod("a", 1))) as server, logging_in(server, 1.0) as client:
        await client.create(PODS, {"metadata": {"name": "a"}}, "web")


async def test_a_new_login_after_a_rejected_one_does_not_count_either():
    async with (
        replaying(fails(401, "Unauthorized"), says(pod("a", 1))) as server,
        logging_in(server, 0.0) as client,
    ):
        assert (await client.get(PODS, "a", "web")).metadata.name == "a"


async def test_a_write_that_must_be_sent_in_time_is_not_sent_after_a_slow_login():
    """Who sends it may lead no more by then."""
    async with replaying(says({})) as server, logging_in(server, 1.0) as client:
        with pytest.raises(NoCredential, match="bind pod web/a to n1: no credential in time") as caught:
            await client.bind("a", "web", "n1", guard=Guard("u", "1"), within=0.4)
        assert not caught.value.uncertain
        assert server.seen == []
