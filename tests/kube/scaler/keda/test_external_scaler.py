"""KEDA's five methods over gRPC with TLS, asked by a client that was generated from KEDA's own proto."""

import asyncio
import contextlib
import socket
import ssl
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from kube.apiserver import unused_ports
from kube.scaler.keda.client import NAME, Trigger, channel, generated

from cotenant.core.errors import CotenantError
from cotenant.kube.api.objects import Meta
from cotenant.kube.api.store import Store
from cotenant.kube.certificates import certificates
from cotenant.kube.scaler.keda.external_scaler import ExternalScaler
from cotenant.kube.scaler.keda.figures import Figures
from cotenant.kube.scaler.keda.serving import LARGEST_MESSAGE, listening
from cotenant.kube.scaler.resource import GpuScaler, GpuScalerStatus
from cotenant.observe.exposition import Registry, counter, text_of
from cotenant.observe.metrics import Metric

pytestmark = pytest.mark.asyncio
Code = grpc.StatusCode
NOW = datetime.now(UTC)
AUTHORITY = certificates.new_authority(NOW, timedelta(days=1))


def issued(*names):
    return certificates.issue_serving(AUTHORITY, names, NOW, timedelta(hours=1))


class Served:
    """What a server serves, and the GpuScalers that it sees."""

    def __init__(self, port):
        self.port, self.store, self.led = port, Store(), True
        self.watch = SimpleNamespace(store=self.store, synced=True, trouble=None)
        self.registry = Registry()
        self.figures = Figures(self.watch, lambda: self.led)
        self.scaler = ExternalScaler(self.figures, counter(Metric.KEDA_ANSWERS, self.registry))
        self.certificate = issued(NAME)
        self._version = 0

    def decide(
        self, desired, name="room-scene", namespace="team", *, mode="observe", state="Active", message=""
    ):
        self._version += 1
        meta = Meta(
            name=name, namespace=namespace, uid=f"{namespace}/{name}", resource_version=str(self._version)
        )
        status = GpuScalerStatus(desired=desired, state=state, message=message)
        self.store.put(GpuScaler(meta, {"mode": mode}, status))

    def forget(self, name="room-scene", namespace="team"):
        self.store.remove(self.store.named(name, namespace))


@pytest_asyncio.fixture
async def served():
    (port,) = unused_ports(1)
    served = Served(port)
    async with listening("127.0.0.1", port, lambda: served.certificate, served.scaler.handler()):
        yield served


@pytest_asyncio.fixture
async def line(served):
    async with channel(served.port, AUTHORITY.certificate) as line:
        yield line


@pytest.fixture
def trigger(line):
    return Trigger(line, "team", gpuScaler="room-scene", scalerAddress="x:1", enableTLS="true")


async def refused(asking):
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await asking
    return error.value.code(), error.value.details()


async def soon(stream):
    return (await asyncio.wait_for(stream.read(), 60)).result


async def quiet(stream):
    """Nothing comes for a while. The read that waits is returned: a stream has one at a time."""
    reading = asyncio.ensure_future(stream.read())
    done, _ = await asyncio.wait([reading], timeout=0.3)
    assert not done
    return reading


async def forgotten(served):
    """Nothing is kept of streams that a client has left."""
    for _ in range(200):
        if not served.figures._waiting:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{len(served.figures._waiting)} are kept")


class TestPull:
    async def test_the_metric_is_what_was_decided_with_a_target_of_one_replica_each(self, served, trigger):
        for desired in (1, 7, 0, 3):
            served.decide(desired)
            assert await trigger.value() == desired
            assert await trigger.is_active() == (desired > 0)
        assert await trigger.spec() == ("cotenant-replicas", 1.0)

    @pytest.mark.parametrize(
        ("desired", "state", "message"), [(None, "", ""), (2, "", "Deployment x: it is gone")]
    )
    async def test_no_decision_is_an_error_and_never_zero(self, served, trigger, desired, state, message):
        served.decide(desired, state=state, message=message)
        for asking in (trigger.value, trigger.is_active):
            code, why = await refused(asking())
            assert code == Code.UNAVAILABLE
            assert "GpuScaler team/room-scene: nothing is decided" in why
            assert why.endswith(message)

    async def test_a_queue_that_cannot_be_read_is_an_error_with_its_reason(self, served, trigger):
        served.decide(4, state="NoMetric", message="redis: connection refused")
        code, why = await refused(trigger.value())
        assert code == Code.UNAVAILABLE
        assert "redis: connection refused" in why

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda served: setattr(served.watch, "synced", False), "has not yet read"),
            (lambda served: setattr(served.watch, "trouble", CotenantError("no route")), "no route"),
            (lambda served: setattr(served, "led", False), "no server leads"),
        ],
    )
    async def test_a_decision_that_nobody_keeps_up_to_date_is_an_error(self, served, trigger, change, words):
        served.decide(3)
        change(served)
        code, why = await refused(trigger.value())
        assert code == Code.UNAVAILABLE
        assert words in why

    async def test_an_unknown_scaler_is_named_with_the_remedy(self, served, trigger):
        code, why = await refused(trigger.value())
        assert code == Code.NOT_FOUND
        assert "GpuScaler team/room-scene: there is none; create it" in why
        served.decide(2)
        assert await trigger.value() == 2
        served.forget()
        assert (await refused(trigger.is_active()))[0] == Code.NOT_FOUND

    async def test_a_scaler_of_another_namespace_is_not_reported(self, served, line):
        served.decide(5, namespace="other")
        own = Trigger(line, "team", gpuScaler="room-scene", namespace="other")
        assert (await refused(own.value()))[0] == Code.NOT_FOUND
        slash = Trigger(line, "team", gpuScaler="other/room-scene")
        assert (await refused(slash.value()))[0] == Code.INVALID_ARGUMENT

    async def test_a_scaler_that_acts_itself_is_refused(self, served, trigger):
        served.decide(5, mode="act")
        code, why = await refused(trigger.value())
        assert code == Code.FAILED_PRECONDITION
        assert "set spec.mode to observe" in why

    @pytest.mark.parametrize(
        ("namespace", "metadata", "words"),
        [
            ("team", {}, "metadata.gpuScaler: it is missing; name a GpuScaler there (found: nothing)"),
            ("team", {"gpuscaler": "a", "enableTLS": "true"}, "(found: 'enableTLS', 'gpuscaler')"),
            ("team", {"gpuScaler": ""}, "metadata.gpuScaler: '' is not the name"),
            ("team", {"gpuScaler": "A_b"}, "metadata.gpuScaler: 'A_b' is not the name"),
            ("team", {"gpuScaler": "x" * 5000}, "metadata.gpuScaler: 'xxxxxxx"),
            ("", {"gpuScaler": "a"}, "namespace: '' is not the name"),
            ("té", {"gpuScaler": "a"}, "namespace: 't\\xe9' is not the name"),
        ],
    )
    async def test_bad_metadata_is_refused_by_every_method_with_the_field(
        self, line, namespace, metadata, words
    ):
        asked = Trigger(line, namespace, **metadata)
        assert await asked.asked_all() == [Code.INVALID_ARGUMENT] * 5
        why = (await refused(asked.value()))[1]
        assert words in why
        assert len(why) < 300

    async def test_a_metric_of_another_name_is_refused(self, served, trigger):
        served.decide(5)
        code, why = await refused(trigger.value("queueLength"))
        assert (code, why) == (
            Code.INVALID_ARGUMENT,
            "metricName: 'queueLength' is not ours: it is cotenant-replicas",
        )

    async def test_the_specification_is_told_before_anything_is_decided(self, trigger):
        assert await trigger.spec() == ("cotenant-replicas", 1.0)

    async def test_answers_are_counted_by_method_and_status(self, served, trigger):
        served.decide(1)
        await trigger.value()
        served.forget()
        await refused(trigger.is_active())
        text = text_of(served.registry).decode()
        assert 'cotenant_keda_answers_total{code="OK",method="GetMetrics"} 1.0' in text
        assert 'cotenant_keda_answers_total{code="NOT_FOUND",method="IsActive"} 1.0' in text


class TestPush:
    async def test_what_is_known_comes_at_once_and_then_each_change(self, served, trigger):
        served.decide(0)
        stream = trigger.active_stream()
        assert await soon(stream) is False
        served.decide(2)
        assert await soon(stream) is True
        served.decide(0)
        assert await soon(stream) is False
        stream.cancel()

    async def test_a_change_that_leaves_it_inactive_sends_nothing(self, served, trigger):
        served.decide(0)
        stream = trigger.active_stream()
        assert await soon(stream) is False
        served.decide(0, state="Idle")
        reading = await quiet(stream)
        served.decide(1)
        assert (await reading).result is True
        stream.cancel()

    async def test_active_is_repeated_for_a_keda_that_was_not_ready_for_it(
        self, served, trigger, monkeypatch
    ):
        monkeypatch.setattr("cotenant.kube.scaler.keda.external_scaler.AGAIN", (0.05, 0.05))
        served.decide(4)
        stream = trigger.active_stream()
        assert [await soon(stream) for _ in range(3)] == [True, True, True]
        (await quiet(stream)).cancel()
        stream.cancel()

    async def test_a_stream_waits_for_a_scaler_that_is_not_there_yet(self, served, trigger):
        stream = trigger.active_stream()
        reading = await quiet(stream)
        served.decide(None)
        await asyncio.sleep(0.05)
        assert not reading.done()
        served.decide(1)
        assert (await reading).result is True
        stream.cancel()

    async def test_missing_figures_send_nothing(self, served, trigger):
        served.decide(0)
        stream = trigger.active_stream()
        assert await soon(stream) is False
        served.decide(3, state="NoMetric")
        reading = await quiet(stream)
        served.decide(3)
        assert (await reading).result is True
        stream.cancel()

    async def test_the_specification_is_pushed_at_once_and_the_stream_stays_open(self, trigger):
        stream = trigger.spec_stream()
        (spec,) = (await stream.read()).metricSpecs
        assert (spec.metricName, spec.targetSizeFloat) == ("cotenant-replicas", 1.0)
        (await quiet(stream)).cancel()
        stream.cancel()

    async def test_streams_end_without_an_error_when_the_server_stops(self, served, trigger):
        served.decide(0)
        streams = [trigger.active_stream(), trigger.spec_stream()]
        for stream in streams:
            await stream.read()
        served.scaler.end_streams()
        for stream in streams:
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() == Code.OK

    async def test_a_thousand_push_triggers_share_one_connection(self, served, line):
        count = 1000
        for number in range(count):
            served.decide(0, f"s{number}")
        triggers = [Trigger(line, "team", gpuScaler=f"s{number}") for number in range(count)]
        active = [trigger.active_stream() for trigger in triggers]
        specs = [trigger.spec_stream() for trigger in triggers]
        assert not any(await asyncio.gather(*map(soon, active)))
        await asyncio.gather(*(each.read() for each in specs))
        assert len(served.figures._waiting) == count
        for number in range(0, count, 10):
            served.decide(1, f"s{number}")
        assert all(await asyncio.gather(*map(soon, active[::10])))
        assert await triggers[10].value() == 1
        for stream in (*active, *specs):
            stream.cancel()
        await forgotten(served)


class TestConnection:
    async def test_plain_text_is_not_answered(self, served):
        options = [("grpc.enable_http_proxy", 0)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}", options=options) as plain:
            trigger = Trigger(plain, "team", gpuScaler="room-scene")
            assert (await refused(trigger.is_active()))[0] == Code.UNAVAILABLE

    async def test_the_server_shows_a_certificate_of_its_name_and_authority(self, served):
        stranger = certificates.new_authority(NOW, timedelta(days=1))
        for trusted, name in ((stranger.certificate, NAME), (AUTHORITY.certificate, "other.svc")):
            async with channel(served.port, trusted, name) as line:
                assert (await refused(Trigger(line, "team", gpuScaler="a").is_active()))[
                    0
                ] == Code.UNAVAILABLE

    async def test_old_versions_of_tls_are_refused(self, served):
        context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
        context.set_alpn_protocols(["h2"])
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", served.port, ssl=context, server_hostname=NAME)

    async def test_new_connections_get_the_newest_certificate(self, served):
        served.decide(1)
        async with channel(served.port, AUTHORITY.certificate) as before:
            assert await Trigger(before, "team", gpuScaler="room-scene").value() == 1
            served.certificate = issued("renewed.svc")
            async with channel(served.port, AUTHORITY.certificate, "renewed.svc") as after:
                assert await Trigger(after, "team", gpuScaler="room-scene").value() == 1
            assert await Trigger(before, "team", gpuScaler="room-scene").value() == 1

    async def test_a_message_that_is_too_large_is_refused_and_the_connection_lives(
        self, served, line, trigger
    ):
        served.decide(1)
        large = Trigger(line, "team", gpuScaler="room-scene", more="x" * LARGEST_MESSAGE)
        assert await large.asked_all() == [Code.RESOURCE_EXHAUSTED] * 5
        assert await trigger.value() == 1

    async def test_bytes_that_are_no_message_are_refused(self, served, line, trigger):
        served.decide(1)
        for method in generated().messages.DESCRIPTOR.services_by_name["ExternalScaler"].methods:
            path = f"/externalscaler.ExternalScaler/{method.name}"
            for junk in (b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f", b"\x1a\x05\x0a\x80"):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await line.unary_unary(path)(junk, timeout=10)
                assert error.value.code() in {Code.INTERNAL, Code.UNKNOWN, Code.INVALID_ARGUMENT}
        assert await trigger.value() == 1

    async def test_an_unknown_method_is_unimplemented(self, line):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await line.unary_unary("/externalscaler.ExternalScaler/Scale")(b"", timeout=10)
        assert error.value.code() == Code.UNIMPLEMENTED

    async def test_a_port_in_use_is_named(self, served):
        with pytest.raises(CotenantError, match=f"port {served.port}: it cannot be listened on"):
            async with listening(
                "127.0.0.1", served.port, lambda: served.certificate, served.scaler.handler()
            ):
                pass

    async def test_it_listens_on_all_addresses_and_on_ipv6(self, served):
        (port,) = unused_ports(1)
        handler = served.scaler.handler()
        served.decide(6)
        async with (
            listening("", port, lambda: served.certificate, handler),
            channel(port, AUTHORITY.certificate) as line,
        ):
            assert await Trigger(line, "team", gpuScaler="room-scene").value() == 6
        if not has_ipv6():
            return
        async with listening("::1", port, lambda: served.certificate, handler):
            with contextlib.closing(socket.create_connection(("::1", port), 5)):
                pass


def has_ipv6():
    with contextlib.suppress(OSError), contextlib.closing(socket.socket(socket.AF_INET6)) as probe:
        probe.bind(("::1", 0))
        return True
    return False
