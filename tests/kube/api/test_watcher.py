"""A watcher against a server that cuts, stalls and forgets: its consumers see each change once."""

import asyncio
import logging
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from kube.replay import (
    bookmark,
    client_of,
    event,
    fails,
    hangs_up,
    listing,
    pod,
    replaying,
    says,
    streams,
    too_old,
    waits,
)

from cotenant.kube.api.auth.credential_file import CredentialFile
from cotenant.kube.api.auth.credentials import StoredCredentials
from cotenant.kube.api.errors import Forbidden, NoCredential, Unreachable
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.watcher import Watcher, WatchSettings

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("route")]
QUICKLY = WatchSettings(first_pause=0.01, longest_pause=0.05, silence=0.5, list_timeout=1.0)


@asynccontextmanager
async def watching(*answers, settings=QUICKLY):
    """A watcher, what it told, and the server it watches."""
    async with replaying(*answers) as server, client_of(server) as client:
        watcher = Watcher(client, PODS, settings=settings)
        told = []
        watcher.store.subscribe(
            lambda c: told.append((c.kind, c.object.metadata.name, c.object.metadata.resource_version))
        )
        task = asyncio.create_task(watcher.run())
        try:
            yield watcher, told, server
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()


async def until(condition, seconds=5.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        await asyncio.sleep(0.005)


async def test_a_watch_continues_where_the_list_ended():
    hang = streams(event("ADDED", pod("b", 11)), event("MODIFIED", pod("a", 12)), end="hang")
    async with watching(listing(10, pod("a", 1)), hang) as (watcher, told, server):
        await watcher.wait_until_synced(2)
        await until(lambda: len(told) == 3)
        assert told == [("added", "a", "1"), ("added", "b", "11"), ("modified", "a", "12")]
        query = server.seen[1].query
        assert (query["watch"], query["resourceVersion"], query["allowWatchBookmarks"]) == ("1", "10", "true")
        assert 240 <= int(query["timeoutSeconds"]) <= 480


@pytest.mark.parametrize("end", ["close", "cut"])
async def test_after_a_break_it_continues_from_the_last_event_or_bookmark(end):
    answers = [
        listing(10, pod("a", 1)),
        streams(event("MODIFIED", pod("a", 12)), end=end),
        streams(bookmark(40), end=end),
        hangs_up(),
        streams(event("DELETED", pod("a", 41)), end="hang"),
    ]
    async with watching(*answers) as (watcher, told, server):
        await until(lambda: len(told) == 3)
        assert told == [("added", "a", "1"), ("modified", "a", "12"), ("deleted", "a", "41")]
        versions = [r.query.get("resourceVersion") for r in server.seen]
        assert versions[:4] == [None, "10", "12", "40"]
        assert set(versions[4:]) == {"40"}
        assert watcher.lists == 1


async def test_what_a_broken_line_began_to_say_is_not_told():
    whole = b'{"type":"MODIFIED","object":{"metadata":{"name":"a","uid":"uid-a","resourceVersion":"12"}}}\n'
    answers = [
        listing(10, pod("a", 1)),
        streams(whole + whole[:40], end="cut"),
        streams(event("MODIFIED", pod("a", 13)), end="hang"),
    ]
    async with watching(*answers) as (_, told, server):
        await until(lambda: len(told) == 3)
        assert told == [("added", "a", "1"), ("modified", "a", "12"), ("modified", "a", "13")]
        assert server.seen[2].query["resourceVersion"] == "12"


async def test_lines_may_come_in_any_pieces():
    text = b"".join(
        b'{"type":"ADDED","object":{"metadata":{"name":"p%d","uid":"u%d","resourceVersion":"%d"}}}\n'
        % (n, n, n)
        for n in range(20, 25)
    )
    pieces = [text[i : i + 7] for i in range(0, len(text), 7)]
    async with watching(listing(10), streams(*pieces, end="hang")) as (_, told, _server):
        await until(lambda: len(told) == 5)
        assert told == [("added", f"p{n}", str(n)) for n in range(20, 25)]


@pytest.mark.parametrize("gone", [streams(too_old()), fails(410, "Expired", "too old resource version")])
async def test_what_was_missed_while_the_server_forgot_is_told_as_a_difference(gone):
    answers = [
        listing(10, pod("a", 1), pod("b", 2), pod("c", 3), pod("d", 4)),
        streams(event("MODIFIED", pod("a", 12))),
        gone,
        # a was told already; b changed, c is gone, d was made anew, e is new
        listing(90, pod("a", 12), pod("b", 50), pod("d", 60, uid="another"), pod("e", 70)),
        streams(end="hang"),
    ]
    async with watching(*answers) as (watcher, told, server):
        await until(lambda: len(server.seen) == 5)
        assert told[:5] == [
            ("added", "a", "1"), ("added", "b", "2"), ("added", "c", "3"), ("added", "d", "4"), ("modified", "a", "12"),
        ]  # fmt: skip
        assert told[5:] == [
            ("deleted", "c", "3"), ("deleted", "d", "4"), ("modified", "b", "50"), ("added", "d", "60"), ("added", "e", "70"),
        ]  # fmt: skip
        assert server.seen[4].query["resourceVersion"] == "90"
        assert watcher.lists == 2


async def test_a_list_after_the_first_is_never_from_a_cache():
    settings = WatchSettings(first_pause=0.01, longest_pause=0.05, newest=False)
    answers = [listing(10), streams(too_old()), listing(20), streams(end="hang")]
    async with watching(*answers, settings=settings) as (_, _told, server):
        await until(lambda: len(server.seen) == 4)
        assert server.seen[0].query["resourceVersion"] == "0"
        assert "resourceVersion" not in server.seen[2].query


async def test_after_a_silence_another_watch_is_tried(caplog):
    answers = [
        listing(10, pod("a", 1)),
        streams(event("MODIFIED", pod("a", 12)), end="hang"),
        streams(event("MODIFIED", pod("a", 13)), end="hang"),
    ]
    settings = replace(QUICKLY, list_timeout=20.0)
    async with watching(*answers, settings=settings) as (watcher, told, server):
        await until(lambda: ("modified", "a", "12") in told)
        began = time.monotonic()
        await until(lambda: told[-1] == ("modified", "a", "13"), seconds=20.0)
        assert time.monotonic() - began > 0.3  # and long before the server would end the first watch
        assert server.seen[2].query["resourceVersion"] == "12"
        assert len(told) == 3
        assert watcher.trouble is None
    assert not caplog.records  # in a quiet cluster that is nothing to talk about


async def test_bookmarks_keep_a_silent_watch_alive():
    quiet = streams(*[part for n in range(11, 17) for part in (0.2, bookmark(n))], end="hang")
    async with watching(listing(10), quiet) as (_, _told, server):
        await asyncio.sleep(1.2)
        assert len(server.seen) == 2


async def test_an_overloaded_server_is_left_alone_as_long_as_it_asks():
    answers = [listing(10), fails(429, Retry_After="1"), streams(end="hang")]
    async with watching(*answers) as (_, _told, server):
        await until(lambda: len(server.seen) == 2)
        began = time.monotonic()
        await until(lambda: len(server.seen) == 3)
        assert time.monotonic() - began >= 0.95


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_hot_loop():
    settings = WatchSettings(first_pause=0.05, longest_pause=0.2)
    async with watching(listing(10), streams(), settings=settings) as (_, _told, server):
        await asyncio.sleep(1.0)
        assert 4 <= len(server.seen) <= 16


async def test_who_may_not_list_says_so_and_goes_on_trying():
    answers = [
        fails(403, "Forbidden", "pods is forbidden"),
        fails(403, "Forbidden"),
        listing(10),
        streams(end="hang"),
    ]
    async with watching(*answers) as (watcher, _told, _server):
        await until(lambda: watcher.trouble is not None)
        assert not watcher.synced
        await watcher.wait_until_synced(2)
        assert watcher.trouble is None
    async with watching(fails(403, "Forbidden", "pods is forbidden")) as (watcher, _told, _server):
        with pytest.raises(Forbidden, match="list pods: not allowed: pods is forbidden"):
            await watcher.wait_until_synced(0.3)


async def test_a_credential_that_is_missing_for_a_while_does_not_end_the_watch(tmp_path):
    token = CredentialFile("users[u].user.tokenFile", path=tmp_path / "token")
    async with (
        replaying(listing(10, pod("a", 1)), streams(end="hang")) as server,
        client_of(server, credentials=StoredCredentials(token)) as client,
    ):
        watcher = Watcher(client, PODS, settings=QUICKLY)
        task = asyncio.create_task(watcher.run())
        await until(lambda: isinstance(watcher.trouble, NoCredential))
        (tmp_path / "token").write_text("t0ken")
        await watcher.wait_until_synced(2)
        assert server.seen[0].headers["Authorization"] == "Bearer t0ken"
        task.cancel()


async def test_a_watch_that_is_not_even_agreed_to_is_trouble():
    answers = [listing(10), waits(30, streams())]
    async with watching(*answers, settings=WatchSettings(silence=60.0)) as (watcher, _told, _server):
        await until(lambda: isinstance(watcher.trouble, Unreachable), 6)  # after QUICK.request seconds


async def test_trouble_is_over_as_soon_as_the_server_agrees_to_a_watch():
    answers = [listing(10), fails(500), fails(500), streams(end="hang")]
    async with watching(*answers) as (watcher, _told, _server):
        await until(lambda: watcher.trouble is not None)
        await until(lambda: watcher.trouble is None)
        assert watcher.clock() - watcher.heard < 0.4


async def test_who_waits_for_the_first_list_is_told_why_there_is_none():
    async with watching(hangs_up()) as (watcher, _told, _server):
        with pytest.raises(Unreachable, match=r"list pods: no answer from .*: the connection broke"):
            await watcher.wait_until_synced(0.5)


async def test_trouble_is_logged_once_and_not_at_every_try(caplog):
    with caplog.at_level(logging.WARNING, "cotenant"):
        async with watching(fails(403, "Forbidden")) as (_, _told, server):
            await until(lambda: len(server.seen) > 5)
    assert len(caplog.records) == 1


async def test_what_is_no_event_does_not_get_through():
    answers = [
        listing(10, pod("a", 1)),
        streams(b'{"type":"ADDED","object":{}}\n'),
        streams({"type": "SURPRISE", "object": pod("x", 11)}),
        streams(b"not json\n"),
        streams(event("DELETED", pod("a", 12)), end="hang"),
    ]
    async with watching(*answers) as (_, told, server):
        await until(lambda: len(told) == 2)
        assert told == [("added", "a", "1"), ("deleted", "a", "12")]
        assert all(request.query["resourceVersion"] == "10" for request in server.seen[1:])


async def test_a_consumer_that_fails_stops_the_watch():
    async with (
        replaying(listing(10, pod("a", 1)), streams(end="hang")) as server,
        client_of(server) as client,
    ):
        watcher = Watcher(client, PODS)
        watcher.store.subscribe(lambda change: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await watcher.run()


async def test_changes_can_be_fetched_at_leisure():
    stream = streams(event("ADDED", pod("b", 11)), event("DELETED", pod("a", 12)), end="hang")
    async with watching(listing(10, pod("a", 1)), stream) as (watcher, _told, _server):
        await watcher.wait_until_synced(2)
        seen = []
        async for change in watcher.store.changes():
            await asyncio.sleep(0.02)
            seen.append((change.kind, change.object.metadata.name))
            if change.kind == "deleted":
                break
        assert ("deleted", "a") in seen
        assert len(seen) in {2, 3}  # b may have come before or after we began


async def test_nothing_at_all_is_a_list_too():
    async with watching(says({"metadata": {"resourceVersion": "5"}, "items": None}), streams(end="hang")) as (
        w,
        told,
        _,
    ):
        await w.wait_until_synced(2)
        assert len(w.store) == 0
        assert told == []


async def test_a_list_that_is_asked_for_is_newer_than_the_question():
    hang = streams(end="hang")
    lists = [listing("10", pod("a", 1)), listing("20", pod("b", 15))]
    async with watching(lists[0], hang, lists[1], streams(end="hang")) as (watcher, told, _server):
        await watcher.wait_until_synced(5)
        await watcher.relist()
        assert [each.metadata.name for each in watcher.store] == ["b"]
        assert told == [("added", "a", "1"), ("deleted", "a", "1"), ("added", "b", "15")]
        assert watcher.lists == 2
