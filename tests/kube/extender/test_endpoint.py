"""The leader's address is the only endpoint of the extender's Service, whatever others write. On a real API server."""

import asyncio
import contextlib

import pytest

from cotenant.kube.api.client import Selection
from cotenant.kube.api.election import NotLeading
from cotenant.kube.api.errors import Conflict
from cotenant.kube.api.informers import Informers
from cotenant.kube.extender import part as module
from cotenant.kube.extender.endpoint import SLICES, endpoint_slice, publish
from cotenant.kube.extender.part import LeaderEndpoint
from cotenant.kube.parts.part import Context, Term
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import Registry

pytestmark = pytest.mark.asyncio

NAME = "cotenant-extender"


class Leading:
    """Leads until a test says that it does not."""

    leads_for = 1e9

    def must_lead(self, for_seconds=0.0):
        if self.leads_for <= for_seconds:
            raise NotLeading("not ours now")


@pytest.fixture
def settings(namespace):
    return Settings(namespace=namespace)


async def addresses(client, namespace):
    found = await client.get(SLICES, NAME, namespace)
    return [address for each in found["endpoints"] for address in each["addresses"]]


async def write(client, settings, address="10.0.0.1", leading=None):
    return await publish(client, settings, address, (leading or Leading()).must_lead)


@contextlib.asynccontextmanager
async def keeping(client, settings, monkeypatch, address="10.0.0.1"):
    """The part runs, and looks often."""
    monkeypatch.setattr(module, "LOOK", 0.05)
    leading = Leading()
    part = LeaderEndpoint(
        Context(settings, client, Informers(client, ()), leading, Registry(), {"POD_IP": address})
    )
    await part.begin(Term(1))
    assert part.ready() == "it is not written yet"
    running = asyncio.create_task(part.run())
    try:
        yield part, leading
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def until(true, within=10.0):
    async with asyncio.timeout(within):
        while not await true():  # noqa: ASYNC110 - the API server tells nobody
            await asyncio.sleep(0.05)


async def test_it_is_written_and_then_left_alone(client, namespace, settings):
    assert await write(client, settings) is True
    assert await addresses(client, namespace) == ["10.0.0.1"]
    before = (await client.get(SLICES, NAME, namespace))["metadata"]["resourceVersion"]
    assert await write(client, settings) is False
    assert (await client.get(SLICES, NAME, namespace))["metadata"]["resourceVersion"] == before


async def test_a_new_leader_takes_it_over(client, namespace, settings):
    await write(client, settings, "10.0.0.1")
    assert await write(client, settings, "10.0.0.2") is True
    assert await addresses(client, namespace) == ["10.0.0.2"]


async def test_a_write_of_a_former_leader_that_arrives_late_fails(client, namespace, settings, monkeypatch):
    await write(client, settings, "10.0.0.9")
    apply, late = client.apply, []

    async def withheld(*args, **kwargs):
        late.append((args, kwargs))

    monkeypatch.setattr(client, "apply", withheld)
    await write(client, settings, "10.0.0.1")
    monkeypatch.setattr(client, "apply", apply)
    await write(client, settings, "10.0.0.2")
    ((args, kwargs),) = late
    with pytest.raises(Conflict):
        await apply(*args, **kwargs)
    assert await addresses(client, namespace) == ["10.0.0.2"]


async def test_who_does_not_lead_for_long_enough_writes_nothing(client, namespace, settings):
    await write(client, settings, "10.0.0.1")
    leading = Leading()
    leading.leads_for = 1.0
    with pytest.raises(NotLeading):
        await write(client, settings, "10.0.0.2", leading)
    assert await addresses(client, namespace) == ["10.0.0.1"]


@pytest.mark.parametrize(
    "change",
    [
        {"endpoints": [{"addresses": ["10.6.6.6"]}]},
        {"endpoints": []},
        {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]},
        {"ports": [{"name": "https", "port": 1, "protocol": "TCP"}]},
        {"ports": []},
        {"metadata": {"labels": {"kubernetes.io/service-name": "other"}}},
        {"metadata": {"labels": None}},
    ],
)
async def test_what_somebody_else_wrote_is_put_right(client, namespace, settings, monkeypatch, change):
    wanted = endpoint_slice(settings, "10.0.0.1")

    async def right():
        found = await client.get(SLICES, NAME, namespace)
        labels = found["metadata"].get("labels") or {}
        same = all(found[key] == wanted[key] for key in ("endpoints", "ports"))
        return same and wanted["metadata"]["labels"].items() <= labels.items()

    async with keeping(client, settings, monkeypatch) as (part, _):
        await until(lambda: done(part.ready() is None))
        await client.merge_patch(SLICES, NAME, change, namespace)
        await until(right)


async def test_what_somebody_deleted_is_there_again(client, namespace, settings, monkeypatch):
    async with keeping(client, settings, monkeypatch) as (part, _):
        await until(lambda: done(part.ready() is None))
        first = (await client.get(SLICES, NAME, namespace))["metadata"]["uid"]
        await client.delete(SLICES, NAME, namespace)

        async def again():
            found = (await client.list(SLICES, Selection(namespace))).items
            return [each["metadata"]["uid"] for each in found] not in ([], [first])

        await until(again)
        assert await addresses(client, namespace) == ["10.0.0.1"]


async def test_one_of_another_address_family_is_replaced(client, namespace, settings):
    body = {**endpoint_slice(settings, "fd00::1"), "metadata": {"name": NAME}}
    await client.create(SLICES, body, namespace)
    assert await write(client, settings) is True
    assert await addresses(client, namespace) == ["10.0.0.1"]


async def test_without_the_lease_it_is_not_put_right_and_says_so(client, namespace, settings, monkeypatch):
    async with keeping(client, settings, monkeypatch) as (part, leading):
        await until(lambda: done(part.ready() is None))
        leading.leads_for = 0.0
        await write(client, settings, "10.0.0.2")
        await until(lambda: done(part.ready() == "not ours now"))
        assert await addresses(client, namespace) == ["10.0.0.2"]


async def done(value):
    return value
