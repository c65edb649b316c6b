"""Messages damaged at random: JSON that nobody means, bytes that are no JSON, and HTTP that does not hold together.

COTENANT_FUZZ_SEED chooses other damages, COTENANT_FUZZ_CASES how many messages each test sends.
"""

import copy
import gzip
import http.client
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

SEED = int(os.environ.get("COTENANT_FUZZ_SEED", "1"))
CASES = int(os.environ.get("COTENANT_FUZZ_CASES", "200"))
LOST = (OSError, http.client.HTTPException)

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 0.5, 2**31, 2**63 - 1, 2**63, -(2**64), 10**400, 1e308, 1e-300),
    *(float("nan"), float("inf"), "NaN", "Infinity", "9e999999", "", " ", "0", "-1", "4Gi"),
    *("\0", "a\0b", "\ud800", "é\u202e", "../x", "a/b", "x" * 300_000),
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00", "9999-12-31T23:59:59-23:59"),
    *([], {}, [None], [[]], {"": ""}, {"name": None}, [{}] * 500, ["x"] * 5_000),
)
"""What may stand where something else is expected."""

Place = tuple[Any, Any]
"""An object or a list, and the key or the index in it."""


@dataclass(frozen=True)
class Damaged:
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    how: tuple[str, ...] = ()
    """For whoever reads of a failure."""
    framed: bool = True
    """The HTTP around the body is whole, so that an answer is owed."""


def damaged(message: Any, chance: random.Random) -> Damaged:
    """One to three damages to what the message says; sometimes another to its bytes, or to the HTTP around them."""
    tree = copy.deepcopy(message)
    how = [_damage_tree(tree, chance) for _ in range(chance.randint(1, 3))]
    body = json.dumps(tree).encode()
    where = chance.random()
    if where < 0.35:
        damage = chance.choice(BYTES)
        return Damaged(damage(body, chance), how=(*how, damage.__name__))
    if where < 0.5:
        damage_headers = chance.choice(HEADERS)
        body, headers = damage_headers(body, chance)
        return Damaged(body, headers, (*how, str(headers)))
    if where < 0.6:
        headers = chance.choice(FRAMES)
        return Damaged(body, headers, (*how, str(headers)), framed=False)
    return Damaged(body, how=tuple(how))


def _damage_tree(tree: Any, chance: random.Random) -> str:
    places = list(_places(tree))
    if not places:
        return "nothing left to damage"
    inside, key = chance.choice(places)
    kind = chance.choice(("drop", "rename", "recase", "odd", "odd", "odd", "swap", "wrap", "deep"))
    if kind == "drop":
        del inside[key]
    elif kind in ("rename", "recase") and isinstance(inside, dict):
        other = f"{key}x" if kind == "rename" else chance.choice((key.lower(), key.upper(), key.swapcase()))
        inside[other] = inside.pop(key)
    elif kind == "swap":
        there, other = chance.choice(places)
        inside[key] = copy.deepcopy(there[other])
    elif kind in ("wrap", "deep"):
        for _ in range(1 if kind == "wrap" else 200):
            inside[key] = [inside[key]] if chance.random() < 0.5 else {str(key): inside[key]}
    else:
        inside[key] = copy.deepcopy(chance.choice(ODD))
    return f"{kind} {key}"


def _places(tree: Any) -> Iterator[Place]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(inner):
        yield tree, key
        yield from _places(value)


def cut(body: bytes, chance: random.Random) -> bytes:
    return body[: chance.randrange(len(body) + 1)]


def flipped(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body or b" ")
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def with_nul(body: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(body) + 1)
    return body[:at] + b"\0" * chance.randint(1, 9) + body[at:]


def in_another_encoding(body: bytes, chance: random.Random) -> bytes:
    text = body.decode()
    return chance.choice(
        (text.encode("utf-16"), text.encode("utf-32-be"), b"\xef\xbb\xbf" + body, b"\xe9" + body)
    )


def sent_twice(body: bytes, chance: random.Random) -> bytes:
    return body + chance.choice((b"", b"\n", b",")) + body


def with_a_key_twice(body: bytes, chance: random.Random) -> bytes:
    """The first or the last of two may count: neither may do harm."""
    keys = list(json.loads(body)) if body.startswith(b'{"') else [""]
    odd = json.dumps({chance.choice(keys): chance.choice(ODD)}).encode()[1:-1]
    return b"{" + odd + b", " + body[1:] if chance.random() < 0.5 else body[:-1] + b", " + odd + b"}"


def nested_without_end(body: bytes, chance: random.Random) -> bytes:
    opening = chance.choice((b"[", b'{"Pod":', b'{"request":{"object":'))
    return body[: body.find(b":") + 1] + opening * 30_000


def enormous(body: bytes, chance: random.Random) -> bytes:
    return body[:-1] + b', "x": "' + b"x" * chance.choice((10**6, 2_900_000)) + b'"}'


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    cut,
    flipped,
    with_nul,
    in_another_encoding,
    sent_twice,
    with_a_key_twice,
    nested_without_end,
    enormous,
)


def _typed(body: bytes, chance: random.Random) -> tuple[bytes, dict[str, str]]:
    kinds = (
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "nonsense", ""),
        *(
            "application/json; charset=utf-16",
            "application/json; charset=none",
            "application/vnd.kubernetes.protobuf",
        ),
    )
    return body, {"Content-Type": chance.choice(kinds)}


def _packed(body: bytes, chance: random.Random) -> tuple[bytes, dict[str, str]]:
    """Packed as it says, otherwise, or not at all."""
    packed = gzip.compress(body, 1)
    sent = chance.choice((packed, body, packed[: len(packed) // 2]))
    return sent, {"Content-Encoding": chance.choice(("gzip", "deflate", "br", "zstd", "none"))}


HEADERS = (_typed, _packed)

FRAMES: tuple[dict[str, str], ...] = (
    {"Content-Length": "10"},
    {"Content-Length": "100000000"},
    {"Content-Length": "-1"},
    {"Content-Length": "ten"},
    {"Transfer-Encoding": "chunked"},
    {"Transfer-Encoding": "gzip, chunked"},
    {"Content-Length": "10", "Transfer-Encoding": "chunked"},
    {"Expect": "200-ok", "Content-Length": "10"},
    {"Bad Header\0": "x", "Content-Length": "10"},
)
"""In place of the headers that would say where the body ends."""


class Sender:
    """Sends them over one connection, as long as the other side keeps it."""

    def __init__(self, connect: Callable[[], http.client.HTTPSConnection]) -> None:
        self._connect = connect
        self._kept = connect()

    def send(self, path: str, message: Damaged) -> tuple[int, bytes] | None:
        """None: it was hung up on, which is an answer to bad HTTP and to nothing else."""
        if not message.framed:
            return self._send_raw(path, message)
        try:
            return self._send(path, message)
        except LOST:
            self._kept.close()  # closed while it was idle, after the answer before
            return self._send(path, message)

    def close(self) -> None:
        self._kept.close()

    def _send(self, path: str, message: Damaged) -> tuple[int, bytes]:
        self._kept.request("POST", path, message.body, message.headers)
        response = self._kept.getresponse()
        return response.status, response.read()

    def _send_raw(self, path: str, message: Damaged) -> tuple[int, bytes] | None:
        connection = self._connect()
        lines = [
            f"POST {path} HTTP/1.1",
            "Host: it",
            *(f"{key}: {text}" for key, text in message.headers.items()),
        ]
        try:
            connection.connect()
            connection.sock.settimeout(0.1)
            connection.sock.sendall("\r\n".join([*lines, "", ""]).encode() + message.body)
            response = http.client.HTTPResponse(connection.sock, method="POST")
            response.begin()
            return response.status, response.read()
        except LOST:
            return None
        finally:
            connection.close()
