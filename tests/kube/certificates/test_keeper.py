"""Keepers that share a Secret: one makes, all use, and an API server that lags never meets a stranger."""

from __future__ import annotations

import asyncio
import base64
import copy
import logging
import ssl
from datetime import timedelta
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from kube.handshakes import client as tls_client
from kube.handshakes import shake
from kube.shelf import NAME_OF_SERVICE, Clock, Shelf, keeper, run, served, serving

from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.configuration import NAME, webhook_configuration
from cotenant.kube.admission.settings import WebhookSettings
from cotenant.kube.api.errors import AlreadyExists, Forbidden, NotFound, Unreachable
from cotenant.kube.api.resources import (
    CONFIG_MAPS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    SECRETS,
)
from cotenant.kube.certificates import certificates, renewal
from cotenant.kube.certificates.distribution import AGENT_SECRET, CA_CONFIG_MAP
from cotenant.kube.certificates.keeper import SECRET, CertificateKeeper, KeeperTimes
from cotenant.kube.certificates.key_pair import KeyPair
from cotenant.kube.certificates.live_context import server_context
from cotenant.kube.certificates.renewal import from_data, is_signed
from cotenant.kube.settings import Settings


def test_the_first_makes_the_secret_and_the_next_one_uses_it() -> None:
    shelf = Shelf()
    shelf.install()
    one, two = keeper(shelf), keeper(shelf)
    assert not one.ready
    run(one.reconcile())
    run(two.reconcile())
    assert one.ready
    assert two.ready
    assert (one.trouble, two.trouble) == (None, None)
    assert served(one) == served(two)
    assert one.ca_bundle == two.ca_bundle == shelf.bundle
    assert shelf.renewals == 1
    assert set(shelf.secret["data"]) == {
        *("ca.crt", "ca.key", "tls.crt", "tls.key", "scheduler.crt", "scheduler.key"),
        *("agent.crt", "agent.key", "bundle.crt"),
    }


def test_the_certificate_has_the_names_of_both_services_and_what_is_asked_for() -> None:
    webhook = WebhookSettings(service="hook", extra_names=("10.0.0.7", "FD00::0:1", "hook.example"))
    shelf = Shelf()
    one = keeper(shelf, settings=Settings(namespace="ns", webhook=webhook))
    run(one.reconcile())
    certificate = certificates.read(serving(one))
    assert certificate is not None
    assert set(certificates.names_of(certificate)) == {
        f"{service}{ending}"
        for service in ("hook", "cotenant-extender")
        for ending in ("", ".ns", ".ns.svc", ".ns.svc.cluster.local")
    } | {"10.0.0.7", "fd00::1", "hook.example"}
    writes = list(shelf.writes)
    run(one.reconcile())
    assert shelf.writes == writes


@pytest.mark.parametrize("seed", range(5))
def test_of_many_that_race_one_wins_and_all_serve_the_same(seed: int) -> None:
    """At the first start, at a renewal and at a change of authority."""
    shelf, clock = Shelf(Random(seed)), Clock()
    shelf.install()
    keepers = [keeper(shelf, clock) for _ in range(6)]

    async def all_at_once() -> None:
        await asyncio.gather(*(each.reconcile() for each in keepers))

    for days in (0, 61, 125, 2500, 2561, 3100, 3170):
        clock.seconds = days * 86400.0
        run(all_at_once())
        run(all_at_once())  # those who lost a race for the configuration come again
        assert {each.trouble for each in keepers} == {None}
        assert len({serving(each) for each in keepers}) == 1
        assert {each.ca_bundle for each in keepers} == {shelf.bundle}
    assert shelf.renewals == 7


def test_it_makes_no_second_secret_where_one_appears_meanwhile() -> None:
    shelf = Shelf()
    one, two = keeper(shelf), keeper(shelf)

    async def both() -> None:
        first_look = shelf.get

        async def look_and_lose(*arguments: Any) -> Any:
            shelf.get = first_look  # type: ignore[method-assign]
            try:
                return await first_look(*arguments)
            finally:
                await two.reconcile()

        shelf.get = look_and_lose  # type: ignore[method-assign]
        await one.reconcile()

    run(both())
    assert serving(one) == serving(two)
    assert shelf.renewals == 1


def test_only_the_bundle_is_touched_in_the_configuration_and_a_reset_is_mended() -> None:
    shelf = Shelf()
    shelf.install()
    shelf.configuration["webhooks"].append(
        {
            "name": "second.cotenant.dev",
            "clientConfig": {"caBundle": "bm9uZQ==", "url": "https://x"},
            "more": 1,
        }
    )
    before = copy.deepcopy(shelf.configuration)
    one = keeper(shelf)
    for wrong in ("", "Z2FyYmFnZQ==", None):
        for webhook in shelf.configuration["webhooks"]:
            webhook["clientConfig"].pop("caBundle", None)
            if wrong is not None:
                webhook["clientConfig"]["caBundle"] = wrong
        run(one.reconcile())
        for now, then in zip(shelf.configuration["webhooks"], before["webhooks"], strict=True):
            assert base64.b64decode(now["clientConfig"]["caBundle"]) == one.ca_bundle
            now, then = copy.deepcopy(now), copy.deepcopy(then)
            now["clientConfig"].pop("caBundle")
            then["clientConfig"].pop("caBundle", None)
            assert now == then
    writes = len(shelf.writes)
    run(one.reconcile())
    assert len(shelf.writes) == writes


@pytest.mark.parametrize("seed", range(3))
def test_an_api_server_that_hears_late_always_trusts_what_is_served(seed: int) -> None:
    """Short lives, two servers that look when they like, and keys of the Secret that get lost on the way."""
    random = Random(seed)
    settings = Settings(
        namespace="gpus", webhook=WebhookSettings(certificate_lifetime=200.0, authority_lifetime=2000.0)
    )
    shelf, clock = Shelf(random), Clock()
    shelf.install(settings)
    keepers = [keeper(shelf, clock, settings, settle=10.0) for _ in range(2)]
    losses = ("ca.key", "tls.key", "tls.crt", "next-ca.key", "scheduler.crt", "bundle.crt")
    seen: set[bytes] = set()
    bundles: set[bytes] = set()

    async def live() -> None:
        for each in keepers:
            await each.reconcile()
        before = shelf.bundle
        for second in range(5, 2200, 5):
            clock.seconds = float(second)
            for each in keepers:
                if random.random() < 0.5:
                    await each.reconcile()
                certificate = certificates.read(serving(each))
                assert certificate is not None
                assert certificates.validity(certificate).contains(clock.wall())
                for heard in {before, shelf.bundle}:  # now, or five seconds ago
                    assert is_signed(serving(each), heard), second
            before = shelf.bundle
            seen.update(serving(each) for each in keepers)
            bundles.add(before)
            if random.random() < 0.02:
                shelf.secret["data"].pop(random.choice(losses), None)
                shelf.put(SECRETS, shelf.secret, "gpus")

    run(live())
    assert len(seen) > 15
    assert len(bundles) > 2


def test_while_the_api_server_is_away_what_there_is_is_served(caplog: pytest.LogCaptureFixture) -> None:
    shelf, clock = Shelf(), Clock()
    shelf.install()
    one = keeper(shelf, clock)
    run(one.reconcile())
    before = serving(one)
    clock.seconds = 61 * 86400.0
    shelf.fails = {"get secrets": Unreachable("get secrets: no answer")}
    for _ in range(3):
        run(one.reconcile())
    assert isinstance(one.trouble, Unreachable)
    assert serving(one) == before
    served(one)
    assert sum("no answer" in line for line in caplog.messages) == 1, "told once, not at every try"
    shelf.fails = {}
    run(one.reconcile())
    assert one.trouble is None
    assert serving(one) != before


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_who_may_not_touch_the_configuration_still_serves_but_nothing_that_is_not_trusted(verb: str) -> None:
    shelf, clock = Shelf(), Clock()
    shelf.install()
    one = keeper(shelf, clock)
    run(one.reconcile())
    shelf.fails = {f"{verb} {MUTATING_WEBHOOK_CONFIGURATIONS.plural}": Forbidden("not allowed")}
    shelf.secret["data"].clear()  # all is made anew, by an authority that nobody knows
    clock.seconds = 100.0
    run(one.reconcile())
    assert isinstance(one.trouble, Forbidden)
    served(one, shelf.bundle)
    shelf.fails = {}
    run(one.reconcile())
    assert one.trouble is None
    served(one, shelf.bundle)
    clock.seconds = 200.0
    run(one.reconcile())
    served(one, shelf.bundle)


def test_without_a_configuration_there_are_certificates_for_the_extender() -> None:
    shelf = Shelf()
    one = keeper(shelf)
    run(one.reconcile())
    assert isinstance(one.trouble, NotFound)
    assert one.ready
    served(one)


def test_a_secret_that_is_deleted_ends_the_trust_in_what_it_held() -> None:
    """The way to get rid of a key that has leaked."""
    shelf = Shelf()
    shelf.install()
    one = keeper(shelf)
    run(one.reconcile())
    leaked = from_data(shelf.remove(SECRETS, SECRET, "gpus")["data"])
    run(one.reconcile())
    assert one.trouble is None
    assert leaked.authority.certificate not in shelf.bundle
    served(one, shelf.bundle)
    context = one.server_context(client_certificates=True)
    fresh = from_data(shelf.secret["data"])
    shake(context, tls_client(one.ca_bundle, fresh.scheduler), NAME_OF_SERVICE)
    with pytest.raises(ssl.SSLError):
        shake(context, tls_client(one.ca_bundle, leaked.scheduler), NAME_OF_SERVICE)


@pytest.mark.parametrize("jump", [-3 * 365, -1, 100, 5 * 365])
def test_after_a_jump_of_the_clock_there_is_a_certificate_of_now(jump: int) -> None:
    shelf, clock = Shelf(), Clock()
    shelf.install()
    one = keeper(shelf, clock)
    run(one.reconcile())
    clock.offset = timedelta(days=jump)
    assert not one.ready
    run(one.reconcile())
    assert one.ready


def test_servers_of_different_times_write_no_more_than_once_a_step() -> None:
    """Each finds the other's work not yet valid, or long over; their pace keeps it from being a hot loop."""
    shelf, past, future = Shelf(), Clock(offset=timedelta(days=-800)), Clock()
    shelf.install()
    pair = [keeper(shelf, past), keeper(shelf, future)]
    for number in range(10):
        run(pair[number % 2].reconcile())
    assert shelf.renewals <= 10


def test_keys_of_others_in_the_secret_are_left_alone() -> None:
    shelf = Shelf()
    shelf.put(SECRETS, {"metadata": {"name": SECRET}, "data": {"note": "bWluZQ=="}}, "gpus")
    one = keeper(shelf)
    run(one.reconcile())
    assert shelf.secret["data"]["note"] == "bWluZQ=="
    assert one.ready


def test_no_log_shows_a_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shelf, clock = Shelf(), Clock()
    shelf.install()
    one = keeper(shelf, clock)
    for days in (0, 61, 2500, 3100):
        clock.seconds = days * 86400.0
        run(one.reconcile())
    secrets = {text for key, text in shelf.secret["data"].items() if key.endswith(".key")}
    told = " ".join([*caplog.messages, repr(one), repr(shelf.read(SECRETS, SECRET, "gpus"))])
    assert "created" in told
    assert "PRIVATE" not in told
    assert not any(text in told for text in secrets)


def trusted_by_scrapers(shelf: Shelf) -> bytes:
    return shelf.raw(CONFIG_MAPS, CA_CONFIG_MAP, "gpus")["data"]["ca.crt"].encode()


def agents_pair(shelf: Shelf) -> KeyPair:
    data = shelf.raw(SECRETS, AGENT_SECRET, "gpus")["data"]
    return KeyPair(*(base64.b64decode(data[key]) for key in ("tls.crt", "tls.key")))


def test_a_scraper_verifies_servers_and_agents_by_the_config_map() -> None:
    shelf = Shelf()
    shelf.install()
    one = keeper(shelf)
    run(one.reconcile())
    trusted = trusted_by_scrapers(shelf)
    assert trusted == one.ca_bundle
    served(one, trusted)
    agent = server_context(agents_pair(shelf))
    for ending in ("", ".gpus", ".gpus.svc", ".gpus.svc.cluster.local"):
        shake(agent, tls_client(trusted), f"cotenant-agent{ending}")
    with pytest.raises(ssl.SSLError):
        shake(agent, tls_client(trusted), NAME_OF_SERVICE)
    assert set(shelf.raw(SECRETS, AGENT_SECRET, "gpus")["data"]) == {"tls.crt", "tls.key"}, (
        "no key of the authority"
    )
    assert set(shelf.raw(CONFIG_MAPS, CA_CONFIG_MAP, "gpus")["data"]) == {"ca.crt"}


def test_a_scraper_trusts_a_new_authority_long_before_agents_serve_what_it_signed() -> None:
    shelf, clock = Shelf(), Clock()
    shelf.install()
    one = keeper(shelf, clock)
    heard: list[bytes] = []
    seen: set[bytes] = set()
    for days in range(0, 3650, 10):
        clock.seconds = days * 86400.0
        run(one.reconcile())
        heard.append(trusted_by_scrapers(shelf))
        seen.add(agents_pair(shelf).certificate)
        for bundle in {*heard[-54:]}:  # of a year and a half ago
            assert is_signed(agents_pair(shelf).certificate, bundle), days
    assert len(seen) > 50
    assert len(set(heard)) > 1


def test_agents_keep_their_certificate_while_scrapers_cannot_be_told_of_its_authority() -> None:
    shelf = Shelf()
    shelf.install()
    one = keeper(shelf)
    run(one.reconcile())
    before = agents_pair(shelf)
    shelf.remove(SECRETS, SECRET, "gpus")  # all is made anew, by another authority
    shelf.fails = {"patch configmaps": Forbidden("not allowed")}
    run(one.reconcile())
    assert isinstance(one.trouble, Forbidden)
    assert agents_pair(shelf) == before
    served(one, shelf.bundle)
    shelf.fails = {}
    run(one.reconcile())
    assert one.trouble is None
    assert is_signed(agents_pair(shelf).certificate, trusted_by_scrapers(shelf))
    assert agents_pair(shelf) != before


@pytest.mark.parametrize(("kind", "name"), [(CONFIG_MAPS, CA_CONFIG_MAP), (SECRETS, AGENT_SECRET)])
def test_what_was_published_is_restored_and_what_others_wrote_there_stays(kind: Any, name: str) -> None:
    shelf = Shelf()
    shelf.install()
    one = keeper(shelf)
    run(one.reconcile())
    whole = copy.deepcopy(shelf.raw(kind, name, "gpus")["data"])
    shelf.remove(kind, name, "gpus")
    run(one.reconcile())
    assert shelf.raw(kind, name, "gpus")["data"] == whole
    shelf.raw(kind, name, "gpus")["data"] = {**dict.fromkeys(whole, "x"), "note": "mine"}
    run(one.reconcile())
    assert shelf.raw(kind, name, "gpus")["data"] == {**whole, "note": "mine"}
    writes = list(shelf.writes)
    run(one.reconcile())
    assert shelf.writes == writes


def test_without_a_webhook_configuration_scrapers_can_verify_all_the_same() -> None:
    shelf = Shelf()
    one = keeper(shelf)
    run(one.reconcile())
    assert isinstance(one.trouble, NotFound)
    assert trusted_by_scrapers(shelf) == one.ca_bundle


@pytest_asyncio.fixture
async def installed(client: Any) -> Any:
    """A real API server with the webhook's configuration, and a namespace for the Secret."""
    name = "t-certificates"
    try:
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    except AlreadyExists:
        await client.delete(SECRETS, SECRET, name)
    settings = Settings(namespace=name)
    await client.create(MUTATING_WEBHOOK_CONFIGURATIONS, webhook_configuration(settings, Dialects()))
    yield settings
    await client.delete(MUTATING_WEBHOOK_CONFIGURATIONS, NAME)


async def until(true: Any, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not (await true() if asyncio.iscoroutinefunction(true) else true()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def published(client: Any) -> bytes:
    found = await client.get(MUTATING_WEBHOOK_CONFIGURATIONS, NAME)
    return base64.b64decode(found.webhooks[0].client_config.ca_bundle)


@pytest.mark.asyncio
async def test_on_a_real_api_server_keepers_agree_and_mend_at_once(
    client: Any, other: Any, installed: Settings
) -> None:
    times = KeeperTimes(look=3600.0, pace=0.1, settle=0.5)
    keepers = [CertificateKeeper(each, installed, NAME, times) for each in (client, other, client)]
    running = [asyncio.create_task(each.run()) for each in keepers]
    try:
        await asyncio.gather(*(each.wait_until_ready(20.0) for each in keepers))
        assert len({serving(each) for each in keepers}) == 1

        async def is_published() -> bool:
            return await published(client) == keepers[0].ca_bundle

        await until(is_published)
        reset = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        await client.json_patch(MUTATING_WEBHOOK_CONFIGURATIONS, NAME, reset)
        await until(is_published)
        first = serving(keepers[0])
        await client.merge_patch(SECRETS, SECRET, {"data": {"tls.key": "AAAA"}}, installed.namespace)
        await until(lambda: {serving(each) for each in keepers} != {first})
        await until(lambda: len({serving(each) for each in keepers}) == 1)
        bundle = keepers[0].ca_bundle
        await client.delete(SECRETS, SECRET, installed.namespace)
        await until(lambda: all(each.ca_bundle not in {b"", bundle} for each in keepers))
        await until(lambda: len({each.ca_bundle for each in keepers}) == 1)
        await until(is_published)
        await until(lambda: all(each.trouble is None for each in keepers))
        kept = from_data((await client.get(SECRETS, SECRET, installed.namespace)).data)
        assert renewal.is_signed(kept.serving.certificate, await published(client))
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.asyncio
async def test_without_its_namespace_it_says_so_and_goes_on_trying(client: Any) -> None:
    one = CertificateKeeper(client, Settings(namespace="t-not-there"), NAME)
    running = asyncio.create_task(one.run())
    with pytest.raises(NotFound, match="t-not-there"):
        await one.wait_until_ready(1.0)
    assert not running.done()
    running.cancel()
