"""Questions to Prometheus over HTTP: what is asked, and what is made of every kind of answer.

tests/advice/test_with_prometheus.py asks a real one.
"""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cluster.testbed.certificates import Authority

from cotenant.core.errors import BadInput
from cotenant.observe import prometheus, prometheus_http
from cotenant.observe.prometheus import Line, PrometheusFailed, TooMuch, Unavailable, instant, ranged
from cotenant.observe.prometheus_http import HttpTransport

pytestmark = pytest.mark.asyncio


class Answers(ThreadingHTTPServer):
    """Gives scripted answers, the last of them again and again, and notes what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[tuple[int, bytes, dict[str, str]]] = []
        self.asked: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []

    def say(self, body: Any, status: int = 200, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.script.append((status, data, {name.replace("_", "-"): value for name, value in headers.items()}))

    def result(self, kind: str, *found: dict[str, Any], **more: Any) -> None:
        self.say({"status": "success", "data": {"resultType": kind, "result": list(found)}, **more})

    def error(self, words: str, status: int = 422) -> None:
        self.say({"status": "error", "errorType": "execution", "error": words}, status)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        form = self.rfile.read(length).decode()
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query or form).items()}
        self.server.asked.append({"path": parts.path, "method": self.command, **asked})
        self.server.headers.append(dict(self.headers))
        script = self.server.script
        status, body, headers = script.pop(0) if len(script) > 1 else script[0]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 -- http.server calls it so

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Answers]:
    server = Answers()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "_PAUSE", 0.001)


def vector(value: str = "3", **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [1700000000, value]}


def matrix(*points: tuple[float, str], **labels: str) -> dict[str, Any]:
    return {"metric": labels, "values": [list(each) for each in points]}


async def lines(transport: HttpTransport, first: float = 0.0, end: float = 900.0, **more: Any) -> list[Line]:
    return [each async for each in ranged(transport, "q", first, end, 300.0, **more)]


async def test_a_vector_without_what_is_no_number(server: Answers) -> None:
    server.result("vector", vector("3", a="x"), vector("NaN", a="y"), vector("+Inf", a="z"))
    assert await instant(HttpTransport(server.url), "up", 1700000000.5) == [({"a": "x"}, 3.0)]
    (asked,) = server.asked
    assert (asked["path"], asked["query"], asked["time"]) == ("/api/v1/query", "up", "1700000000.5")
    assert asked["partial_response"] == "false"


async def test_a_path_before_the_api_is_kept(server: Answers) -> None:
    server.result("vector")
    transport = HttpTransport(f"{server.url}/select/0/prometheus/")
    await instant(transport, "up", 0)
    assert server.asked[0]["path"] == "/select/0/prometheus/api/v1/query"
    assert transport.name.endswith("/select/0/prometheus")


async def test_times_are_multiples_of_the_step_and_gaps_are_left_out(server: Answers) -> None:
    server.result("matrix", matrix((300, "1"), (600, "NaN"), (900, "2e9"), pod="p"))
    found = await lines(HttpTransport(server.url), 10, 1000)
    assert found == [Line({"pod": "p"}, [300.0, 900.0], [1.0, 2e9])]
    assert (server.asked[0]["start"], server.asked[0]["end"], server.asked[0]["step"]) == (
        "300",
        "900",
        "300",
    )


async def test_nothing_is_asked_for_no_time(server: Answers) -> None:
    server.result("matrix")
    assert await lines(HttpTransport(server.url), 1000, 1100) == []
    assert server.asked == []


@pytest.mark.parametrize(
    "words", ["query processing would load too many samples", "exceeded maximum resolution"]
)
async def test_what_is_too_much_is_halved(server: Answers, words: str) -> None:
    server.error(words)
    server.error(words)
    server.result("matrix", matrix((300, "1"), pod="p"))
    await lines(HttpTransport(server.url), 0, 300 * 400)
    ends = [(float(each["end"]) - float(each["start"])) / 300 for each in server.asked]
    assert ends[:3] == [400, 199, 99], "intervals between the first and the last"
    assert max(ends[2:]) == 99
    assert float(server.asked[-1]["end"]) == 300 * 400


async def test_what_is_too_much_even_for_one_moment_is_told(server: Answers) -> None:
    server.error("too many samples")
    with pytest.raises(TooMuch, match="too many samples"):
        await lines(HttpTransport(server.url))


async def test_a_server_that_is_busy_is_asked_again(server: Answers) -> None:
    server.say(b"bad gateway", 502)
    server.say(b"", 503)
    server.result("vector", vector())
    assert len(await instant(HttpTransport(server.url), "up", 0)) == 1
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (200, b"<html>", PrometheusFailed, "does not answer as Prometheus does"),
        (200, b"[]", PrometheusFailed, "does not answer as Prometheus does"),
        (200, b"[" * 100_000, PrometheusFailed, "does not answer as Prometheus does"),
        (404, b"nothing", PrometheusFailed, "has no /api/v1/query: is it Prometheus"),
        (302, b"", PrometheusFailed, "redirects .302., which is not followed"),
        (401, b"", PrometheusFailed, "--prometheus-token-file"),
        (403, b"", PrometheusFailed, "--prometheus-token-file"),
        (500, b"boom", Unavailable, "status 500"),
        (
            400,
            b'{"status":"error","error":"parse error"}',
            PrometheusFailed,
            "refuses the query up: parse error",
        ),
        (
            200,
            b'{"status":"success","data":{"resultType":"matrix","result":[]}}',
            PrometheusFailed,
            "no vector",
        ),
        (
            200,
            b'{"status":"success","data":{"resultType":"vector","result":[3]}}',
            PrometheusFailed,
            "no vector",
        ),
        (
            200,
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":[]}]}}',
            PrometheusFailed,
            "form",
        ),
        (
            200,
            b'{"status":"success","warnings":["store a is down"],"data":{"resultType":"vector","result":[]}}',
            Unavailable,
            "does not answer in full: store a is down",
        ),
        (400, b'{"status":"error","error":"\\u001b[31m' + b"x" * 5000 + b'"}', PrometheusFailed, r"x\.\.\.$"),
    ],
)
async def test_every_other_answer_is_an_error_in_words(
    server: Answers, status: int, body: bytes, kind: type[Exception], said: str
) -> None:
    server.say(body, status)
    with pytest.raises(kind, match=said) as caught:
        await instant(HttpTransport(server.url), "up", 0)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("points", [[[1]], [["x", "1"]], [[1, "one"]], [1], 3, [[1, None]]])
async def test_a_matrix_in_another_form_is_refused(server: Answers, points: Any) -> None:
    server.result("matrix", {"metric": {}, "values": points})
    with pytest.raises(PrometheusFailed, match="a form that Prometheus does not use"):
        await lines(HttpTransport(server.url))


async def test_gzip_is_unpacked_and_bounded(server: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": [vector()]}}).encode()
    server.say(gzip.compress(body), Content_Encoding="gzip")
    assert len(await instant(HttpTransport(server.url), "up", 0)) == 1
    assert server.headers[0]["Accept-Encoding"] == "gzip"
    monkeypatch.setattr(prometheus_http, "LARGEST", 1 << 16)
    server.script.clear()
    server.say(gzip.compress(b"0" * (1 << 26)), Content_Encoding="gzip")
    with pytest.raises(TooMuch, match="answers more than"):
        await instant(HttpTransport(server.url), "up", 0)
    server.script.clear()
    server.say(b"\x1f\x8b nonsense", Content_Encoding="gzip")
    with pytest.raises(Unavailable, match="damaged"):
        await instant(HttpTransport(server.url), "up", 0)


async def test_a_long_query_is_sent_as_a_form(server: Answers) -> None:
    server.result("vector")
    await instant(HttpTransport(server.url), "x" * 5000, 0)
    assert server.asked[0]["method"] == "POST"
    assert server.asked[0]["query"] == "x" * 5000


async def test_a_token_is_read_at_each_request_and_never_shown(server: Answers, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first-secret\n")
    server.result("vector")
    transport = HttpTransport(server.url, token)
    await instant(transport, "up", 0)
    token.write_text("second-secret")
    await instant(transport, "up", 0)
    sent = [each["Authorization"] for each in server.headers]
    assert sent == ["Bearer first-secret", "Bearer second-secret"]
    server.script.clear()
    server.say(b"", 403)
    with pytest.raises(PrometheusFailed) as caught:
        await instant(transport, "up", 0)
    assert "secret" not in str(caught.value)


async def test_a_user_and_a_password_come_from_the_url_and_stay_out_of_messages(server: Answers) -> None:
    server.say(b"", 401)
    transport = HttpTransport(f"http://me:p%40ss@127.0.0.1:{server.server_port}")
    with pytest.raises(PrometheusFailed) as caught:
        await instant(transport, "up", 0)
    assert "p@ss" not in str(caught.value)
    assert "p%40ss" not in str(caught.value)
    assert base64.b64decode(server.headers[0]["Authorization"].split()[1]) == b"me:p@ss"


@pytest.mark.parametrize("content", ["", "two words", "\xff"])
async def test_a_file_that_is_no_token_is_said_to_be_none(
    server: Answers, tmp_path: Path, content: str
) -> None:
    (tmp_path / "token").write_text(content, encoding="latin-1")
    with pytest.raises(BadInput, match="prometheus-token-file"):
        await instant(HttpTransport(server.url, tmp_path / "token"), "up", 0)


async def test_a_token_is_not_sent_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not sent over plain HTTP"):
        HttpTransport("http://prometheus.example:9090", tmp_path / "token")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "prometheus:9090",
        "ftp://x",
        "http://",
        "http://x:99999999",
        "http://a b",
        "http://x/?q=1",
        "http://[::1",
    ],
)
async def test_what_is_no_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(BadInput, match=r"prometheus: .*write it like http://prometheus"):
        HttpTransport(url)


async def test_a_wrong_url_with_a_password_does_not_show_it() -> None:
    with pytest.raises(BadInput) as caught:
        HttpTransport("ftp://me:secret@host")
    assert "secret" not in str(caught.value)


async def test_nobody_listens(server: Answers) -> None:
    port = server.server_port
    server.shutdown()
    server.server_close()
    with pytest.raises(Unavailable, match="cannot be reached: Connection refused"):
        await instant(HttpTransport(f"http://127.0.0.1:{port}"), "up", 0)
    with pytest.raises(PrometheusFailed, match="cannot be resolved"):
        await instant(HttpTransport("http://nobody.invalid"), "up", 0)


async def test_tls_is_verified_by_the_authority_that_is_named(server: Answers, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority", "an authority")
    pair = authority.issue("server", user="prometheus", addresses=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.result("vector", vector())
    url = server.url.replace("http:", "https:")
    with pytest.raises(PrometheusFailed, match="name its authority with --prometheus-ca-file"):
        await instant(HttpTransport(url), "up", 0)
    assert len(await instant(HttpTransport(url, ca_file=authority.pair.certificate), "up", 0)) == 1
    (tmp_path / "no.pem").write_text("nothing")
    for path in (tmp_path / "no.pem", tmp_path / "missing"):
        with pytest.raises(BadInput, match="prometheus-ca-file"):
            HttpTransport(url, ca_file=path)
