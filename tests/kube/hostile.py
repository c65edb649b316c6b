"""Pods whose author wants the server to remember as much as possible: every field as long as a request may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from kube.builders import COMPUTE, MEMORY, SLOT, WHOLE, container, pod

from cotenant.dialects import names

MARK = "90000009"
"""Stands in every long text; `another` puts another number there."""


def hostile_pods(random: Random, most: int, *, stored: bool = False) -> Iterator[dict[str, Any]]:
    """Yields pods without end, no two alike, each with about `most` characters where it hurts.

    `stored`: only those that the API server itself would store. It checks names and quantities, after the webhook.
    """
    invalid, valid = _kinds(random)
    kinds = valid if stored else invalid + valid
    number = 0
    while True:
        body = kinds[number % len(kinds)](random.randint(most // 2, most))
        body["metadata"] |= {"name": f"it-{number}", "namespace": "web"}
        yield body
        number += 1


def another(message: bytes, number: int) -> bytes:
    """Makes a message that was never sent of one that was: a cache has not seen it."""
    return message.replace(MARK.encode(), str(10_000_000 + number).encode())


Kinds = list[Callable[[int], dict[str, Any]]]


def _kinds(random: Random) -> tuple[Kinds, Kinds]:
    def text(size: int, letters: str = "abcdefghij0123456789") -> str:
        return MARK + "".join(random.choices(letters, k=8)) + letters[random.randrange(len(letters))] * size

    def digits(size: int) -> str:
        return text(size, "123456789")

    def listed(size: int, one: int) -> str:
        return ",".join(f"{random.getrandbits(64):016x}"[:one] for _ in range(size // (one + 1)))

    def wish(annotation: str, value: str, **asked: object) -> dict[str, Any]:
        return pod(container("main", **(asked or {MEMORY: "1Gi"})), annotations={annotation: value})

    def admitted(annotation: str, value: str) -> dict[str, Any]:
        body = wish(annotation, value, **{MEMORY: "1Gi", SLOT: "1"})
        resources = body["spec"]["containers"][0]["resources"]
        resources["requests"] = resources["limits"]
        return body

    def numbered(size: int) -> dict[str, str]:
        return {f"k{random.getrandbits(40)}": "" for _ in range(size // 20)}

    def pages(size: int) -> dict[str, str]:
        """The API server takes any size of huge pages, and sorts them before `memory`."""
        return {"cpu": "1", **{f"hugepages-{at}": "1" for at in range(size // 24)}, "memory": "1Gi"}

    def in_all(size: int) -> dict[str, Any]:
        quantities = pages(size // 2)
        return pod(container("main", memory="1Gi"), resources={"requests": quantities, "limits": quantities})

    invalid: Kinds = [
        *(
            lambda size, name=name: pod(container("main", **{name: digits(size)}))
            for name in (MEMORY, COMPUTE, WHOLE, SLOT, "aliyun.com/gpu-mem", "volcano.sh/gpu-number")
        ),
        lambda size: pod(container("main", memory="1Gi", cpu=digits(size))),
        lambda size: pod(container("main", **{f"cotenant.dev/{text(size)}": "1"})),
        lambda size: pod(container(text(size), memory="1Gi")),
        lambda size: pod(container("main", memory="1Gi"), nodeName=text(size)),
        lambda size: pod(container("main", memory="1Gi"), annotations={f"cotenant.dev/{text(size)}": "1"}),
        lambda size: wish(names.gpu_count(text(size)), "2"),
    ]
    valid: Kinds = [
        lambda size: pod(container("main", memory="1Gi"), schedulerName=text(size)),
        in_all,
        lambda size: pod(container("main", memory="1Gi"), overhead=pages(size)),
        lambda size: pod(container("main", memory="1Gi", **dict.fromkeys(numbered(size), "1"))),
        lambda size: pod(*(container(f"c{at}") for at in range(size // 40)), container("main", memory="1Gi")),
        lambda size: pod(container("main", memory="1Gi"), annotations=numbered(size)),
        *(
            lambda size, key=key, make=make: make(key, text(size))
            for make in (wish, admitted)
            for key in (
                names.GPU_MODEL,
                names.GPU_UUID,
                names.PLACEMENT,
                names.ENFORCE,
                names.GRANT,
                names.gpu_count("main"),
            )
        ),
        lambda size: admitted(names.GPU_MODEL, listed(size, 2)),
        lambda size: admitted(names.GPU_UUID, listed(size, 16)),
        lambda size: admitted(names.GPU_MODEL, listed(4000, 15)),
        lambda size: admitted(names.GPU_UUID, listed(4000, 16)),
        lambda size: wish("example.com/filler", text(size)),
    ]
    return invalid, valid
