"""Lists in pages: what grew too old, what is too long, what comes from the server's cache."""

import pytest
from kube.replay import client_of, fails, listing, pod, replaying

from cotenant.kube.api import client as client_module
from cotenant.kube.api.client import Selection
from cotenant.kube.api.errors import TooLong
from cotenant.kube.api.resources import PODS

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("route")]


async def test_a_list_is_read_page_by_page():
    pages = [
        listing(10, pod("a", 1), more="t1"),
        listing(10, pod("b", 2), more="t2"),
        listing(10, pod("c", 3)),
    ]
    async with replaying(*pages) as server, client_of(server) as client:
        found = await client.list(PODS, Selection("web", labels="app=x", fields="spec.nodeName=n1"), page=1)
        assert [p.metadata.name for p in found.items] == ["a", "b", "c"]
        assert found.resource_version == "10"
        queries = [request.query for request in server.seen]
        assert [q.get("continue") for q in queries] == [None, "t1", "t2"]
        assert all(q["limit"] == "1" and "resourceVersion" not in q for q in queries)
        assert all(
            q["labelSelector"] == "app=x" and q["fieldSelector"] == "spec.nodeName=n1" for q in queries
        )
        assert server.seen[0].path == "/api/v1/namespaces/web/pods"


async def test_a_list_that_grew_too_old_between_pages_is_begun_again_page_by_page():
    """In one piece it could be longer than our memory."""
    pages = [
        listing(10, pod("a", 1), more="t1"),
        fails(410, "Expired"),
        listing(99, pod("a", 50), more="t2"),
        listing(99, pod("b", 60)),
    ]
    async with replaying(*pages) as server, client_of(server) as client:
        found = await client.list(PODS, page=1)
        assert [p.metadata.resource_version for p in found.items] == ["50", "60"]
        assert found.resource_version == "99"
        queries = [request.query for request in server.seen]
        assert [q.get("continue") for q in queries] == [None, "t1", None, "t2"]
        assert all(q["limit"] == "1" for q in queries)


async def test_a_list_whose_pages_always_grow_too_old_is_read_in_one_piece_at_last():
    again = [listing(10, pod("a", 1), more="t1"), fails(410, "Expired")]
    pages = [*again, *again, *again, listing(99, pod("a", 50), pod("b", 60))]
    async with replaying(*pages) as server, client_of(server) as client:
        found = await client.list(PODS, page=1)
        assert [p.metadata.resource_version for p in found.items] == ["50", "60"]
        assert ["limit" in request.query for request in server.seen] == [True] * 6 + [False]
        assert "continue" not in server.seen[-1].query


def long_pod(name):
    return {**pod(name, 1), "spec": {"schedulerName": "x" * 5000}}


async def test_a_page_that_is_too_long_is_read_as_smaller_ones(monkeypatch):
    """500 objects of 1 MB would exhaust our memory; the long ones over, pages grow again."""
    monkeypatch.setattr(client_module, "PAGE_BYTES", 12_000)
    pages = [
        listing(10, *map(long_pod, "abcdefgh")),
        listing(10, *map(long_pod, "ab"), more="t1"),
        listing(10, pod("c", 1), pod("d", 1), more="t2"),
        listing(10, *(pod(name, 1) for name in "efgh")),
    ]
    async with replaying(*pages) as server, client_of(server) as client:
        found = await client.list(PODS, page=8)
        assert "".join(p.metadata.name for p in found.items) == "abcdefgh"
        asked = [(request.query["limit"], request.query.get("continue")) for request in server.seen]
        assert asked == [("8", None), ("2", None), ("2", "t1"), ("8", "t2")]


async def test_a_later_page_that_is_too_long_loses_nothing_of_those_before(monkeypatch):
    monkeypatch.setattr(client_module, "PAGE_BYTES", 6_000)
    pages = [
        listing(10, pod("a", 1), more="t1"),
        listing(10, *map(long_pod, "bc")),
        listing(10, long_pod("b"), more="t2"),
        listing(10, long_pod("c")),
    ]
    async with replaying(*pages) as server, client_of(server) as client:
        found = await client.list(PODS, page=2)
        assert "".join(p.metadata.name for p in found.items) == "abc"
        assert [request.query.get("continue") for request in server.seen] == [None, "t1", "t1", "t2"]


async def test_a_list_of_the_cache_that_is_too_long_is_read_page_by_page(monkeypatch):
    monkeypatch.setattr(client_module, "PAGE_BYTES", 6_000)
    pages = [
        listing(10, *map(long_pod, "ab")),
        listing(10, long_pod("a"), more="t1"),
        listing(10, long_pod("b")),
    ]
    async with replaying(*pages) as server, client_of(server) as client:
        found = await client.list(PODS, newest=False, page=1)
        assert "".join(p.metadata.name for p in found.items) == "ab"
        assert [request.query.get("resourceVersion") for request in server.seen] == ["0", None, None]


async def test_one_object_that_is_too_long_is_an_error(monkeypatch):
    monkeypatch.setattr(client_module, "PAGE_BYTES", 4_000)
    async with replaying(*[listing(10, long_pod("a"))] * 2) as server, client_of(server) as client:
        with pytest.raises(TooLong, match="list pods: not understood: more than 4000 bytes"):
            await client.list(PODS, page=2)
        assert [request.query["limit"] for request in server.seen] == ["2", "1"]


async def test_a_list_from_the_servers_cache_says_so():
    async with replaying(listing(10, pod("a", 1))) as server, client_of(server) as client:
        await client.list(PODS, newest=False)
        assert server.seen[0].query["resourceVersion"] == "0"
