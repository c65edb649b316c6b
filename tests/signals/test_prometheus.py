"""PromQL, asked of a real Prometheus that scrapes an exporter of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from signals.conftest import Opener, QueryOpener
from signals.examples import example
from signals.exporter import Exporter
from signals.servers import Prometheus

from cotenant.signals.prometheus import figure
from cotenant.signals.signal import NoSample, SignalError

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    exporter = Exporter()
    yield exporter
    exporter.shutdown()
    exporter.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, exporter: Exporter) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), exporter.server_port)
    server.start()
    yield server
    server.stop()


async def until(read: Callable[[], Awaitable[Any]], wanted: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(60):
        for _ in range(10_000):
            try:
                got: Any = await read()
            except SignalError as error:
                got = error
            if wanted(got):
                return got
            await asyncio.sleep(0.05)
    raise AssertionError


async def test_a_query_follows_its_series_and_an_absent_series_is_not_zero(
    server: Prometheus, exporter: Exporter, query: QueryOpener
):
    exporter.text, exporter.gone = "queue_depth 7\n", False
    ask = query({"prometheus": {"url": server.url, "query": "queue_depth"}})
    await until(ask.read, lambda got: got == 7.0)
    exporter.text = "queue_depth 0\n"
    await until(ask.read, lambda got: got == 0.0)  # no traffic
    exporter.gone = True
    said = await until(ask.read, lambda got: isinstance(got, NoSample))  # no sample
    assert "has no series: if that means zero, append: or vector(0)" in str(said)
    with_zero = query({"prometheus": {"url": server.url, "query": "queue_depth or vector(0)"}})
    assert await with_zero.read() == 0.0
    exporter.text, exporter.gone = "queue_depth NaN\n", False
    said = await until(ask.read, lambda got: "NaN" in str(got))
    assert isinstance(said, NoSample)


async def test_the_figures_of_a_queue_come_together(server: Prometheus, exporter: Exporter, queue: Opener):
    exporter.gone = False
    exporter.text = "jobs_waiting 4\njobs_running 2\njobs_in_total 100\njobs_out_total 94\n"
    figures = {"inFlight": "jobs_running", "arrived": "jobs_in_total", "completed": "jobs_out_total"}
    signal = queue({"prometheus": {"url": f"{server.url}/", "query": "jobs_waiting", **figures}})
    reading = await until(signal.read, lambda got: not isinstance(got, SignalError))
    assert (reading.backlog, reading.in_flight, reading.arrived, reading.completed) == (4, 2, 100, 94)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            "vector(1) or label_replace(vector(2), 'a', 'b', '', '')",
            "has 2 series: make one of them, such as sum(",
        ),
        ("up[5m]", "gives a matrix"),
        ("'text'", "gives a string"),
        ("sum(", "fails: "),
        ("vector(-1)", "is -1: a figure from 0 to"),
        ("vector(1/0)", "is inf"),
        ("vector(0/0)", "has no figure at present: the answer is NaN"),
    ],
)
async def test_an_answer_that_is_not_one_figure_is_refused_with_a_remedy(
    asked: str, said: str, server: Prometheus, query: QueryOpener
):
    ask = query({"prometheus": {"url": server.url, "query": asked}})
    with pytest.raises(SignalError) as failed:
        await ask.read()
    assert said in str(failed.value)
    assert len(str(failed.value)) < 600


async def test_a_scalar_and_a_query_too_long_for_a_url_are_answered(server: Prometheus, query: QueryOpener):
    assert await query({"prometheus": {"url": server.url, "query": "scalar(vector(3.5))"}}).read() == 3.5
    long = "vector(1)" + " + vector(1)" * 500
    assert await query({"prometheus": {"url": server.url, "query": long}}).read() == 501


async def test_what_is_not_prometheus_is_named(server: Prometheus, exporter: Exporter, query: QueryOpener):
    elsewhere = query({"prometheus": {"url": f"{server.url}/graph", "query": "up"}})
    with pytest.raises(SignalError, match="has no /api/v1/query"):
        await elsewhere.read()
    exporter.text, exporter.gone = "jobs 1\n", False
    other = query({"prometheus": {"url": f"http://127.0.0.1:{exporter.server_port}", "query": "up"}})
    with pytest.raises(SignalError, match="does not answer JSON: check url"):
        await other.read()


async def test_a_partial_answer_is_a_failure():
    """Thanos and federated servers warn when a part did not answer: the sum is then too small."""
    document = {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1.0, "2"]}]},
    }
    assert figure(document, "up") == 2
    with pytest.raises(SignalError, match="not answered in full: no store"):
        figure(document | {"warnings": ["no store matched"]}, "up")


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"resultType": "vector", "result": None},
        {"resultType": "vector", "result": [None]},
        {"resultType": "vector", "result": [{"value": [1.0]}]},
        {"resultType": "vector", "result": [{"value": [1.0, 2]}]},
        {"resultType": "vector", "result": [{"histogram": []}]},
        {"resultType": "scalar", "result": "2"},
    ],
)
async def test_a_form_that_nobody_knows_is_a_failure(data: Any):
    with pytest.raises(SignalError):
        figure({"status": "success", "data": data}, "up")


async def test_the_examples_of_the_page(
    server: Prometheus, exporter: Exporter, queue: Opener, query: QueryOpener
):
    exporter.gone = False
    exporter.text = "jobs_waiting 4\njobs_running 2\njobs_received_total 9\njobs_done_total 3\n"
    exporter.text += "jobs_seconds_sum 0\njobs_seconds_count 0\n"
    signal, seconds = (
        queue(example("prometheus", 0, server.port)),
        query(example("prometheus", 1, server.port)),
    )
    reading = await until(signal.read, lambda got: not isinstance(got, SignalError))
    assert (reading.backlog, reading.in_flight, reading.arrived, reading.completed) == (4, 2, 9, 3)
    await until(
        seconds.read, lambda got: isinstance(got, NoSample) and "NaN" in str(got)
    )  # nothing was done yet
    exporter.text = exporter.text.replace("_sum 0", "_sum 8").replace("_count 0", "_count 10")
    assert await until(seconds.read, lambda got: isinstance(got, float)) == pytest.approx(0.8)
