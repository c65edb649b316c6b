"""Nonsense in bulk from somebody with the role `edit`, through the API server and straight to a server."""

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from random import Random

from cluster.cotenant.hostile_wishes import GATED
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import container, pod, pods_of
from cluster.testbed.api import Api, Object, Refused
from kube.admission.reviews import asked as review_of
from kube.hostile import another, hostile_pods

NOWHERE = {"nodeSelector": {"example.com/zone": "nowhere"}}


def long_quantity(number: int) -> Object:
    """The API server works on it for long, so it is shorter than those that go straight to the server."""
    return pod(f"long-{number}", container(memory="9" * 100_000 + str(number)))


def edits(author: Api, namespace: str, number: int) -> None:
    wish = f"{number}," + ",".join(f"{number}-{at}" for at in range(30_000))
    with contextlib.suppress(Refused):
        author.patch(
            f"{pods_of(namespace)}/edited",
            {"metadata": {"annotations": {"cotenant.dev/gpu-model": wish[:250_000]}}},
        )


def ends(api: Api, author: Api, namespace: str, number: int) -> None:
    """A pod without GPU that has ended, and stays."""
    wish = {"cotenant.dev/gpu-model": f"{number}" + "x" * 250_000}
    author.create(pods_of(namespace), pod(f"ended-{number}", container(), annotations=wish, **NOWHERE))
    api.patch(f"{pods_of(namespace)}/ended-{number}/status", {"status": {"phase": "Succeeded"}})


def sends_to_server(
    cotenant: Installation, address: str, namespace: str, node: str, count: int, at_once: int = 4
) -> None:
    """Straight to webhook and extender, half of them each."""

    def sends(part: int) -> None:
        webhook, extender = cotenant.webhook_connection(address), cotenant.extender_connection(address)
        reviews, questions = list[bytes](), list[bytes]()
        for number, body in enumerate(islice(hostile_pods(Random(part), 150_000), 80)):
            uid = f"hostile-{part}-{number}"
            body["metadata"] |= {
                "name": uid,
                "namespace": namespace,
                "uid": uid,
                "resourceVersion": str(number),
            }
            reviews.append(json.dumps(review_of(body)).encode())
            questions.append(json.dumps({"Pod": body, "NodeNames": [node]}).encode())
        for number in range(count // at_once // 2):
            posts(webhook, "/mutate", another(reviews[number % len(reviews)], number))
            posts(extender, "/filter", another(questions[number % len(questions)], number))
        webhook.close()
        extender.close()

    with ThreadPoolExecutor(at_once) as hands:
        list(hands.map(sends, range(at_once)))


def posts(connection: http.client.HTTPSConnection, path: str, body: bytes) -> None:
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    assert answer.status in (200, 400), answer.status


def nonsense() -> Iterator[Object]:
    filler = "x" * 200_000
    kinds: list[Callable[[str], Object]] = [
        lambda name: pod(name, container(whole="16")),
        lambda name: pod(name, container(memory="64Gi"), annotations={"gpu-count.cotenant.dev/main": "16"}),
        lambda name: pod(name, container(memory="7Ei")),
        lambda name: pod(name, container(memory="1Gi"), annotations={"cotenant.dev/gpu-model": "B9000"}),
        lambda name: pod(name, container(memory="1Gi"), annotations=uuids(256)),
        lambda name: pod(name, container(memory="1Gi"), annotations=uuids(5000)),
        lambda name: pod(name, container(memory="17Gi"), annotations={"example.com/filler": filler}),
        lambda name: pod(name, container(memory="17Gi"), annotations={f"n{at}": "" for at in range(20_000)}),
        lambda name: pod(name, container(memory="1Gi"), **GATED),
        lambda name: pod(name, container(memory="1Gi"), **NOWHERE),
        lambda name: pod(name, container(memory="17Gi"), annotations={"cotenant.dev/retry": "1"}),
        lambda name: pod(name, *(container(f"c{at}", memory="2Gi") for at in range(32))),
        lambda name: pod(name, *(container(f"c{at}", memory="1Gi") for at in range(500))),
    ]
    for number in range(5):
        for at, kind in enumerate(kinds):
            yield kind(f"odd-{at}-{number}")


def uuids(count: int) -> dict[str, str]:
    return {"cotenant.dev/gpu-uuid": ",".join(f"GPU-{at:08}" for at in range(count))}


def tries(author: Api, path: str, body: Object) -> bool:
    try:
        author.create(path, body)
    except Refused:
        return False
    return True


def makes_anew(author: Api, namespace: str, times: int) -> bool:
    """The same name, again and again, with another demand."""
    for number in range(times):
        with contextlib.suppress(Refused):
            author.create(pods_of(namespace), pod("again", container(memory=f"{17 + number}Gi")))
        with contextlib.suppress(Refused):
            author.delete(f"{pods_of(namespace)}/again", gracePeriodSeconds=0)
    return False


def resident(pid: int) -> int:
    """Bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024


def longest_answer(cotenant: Installation, api: Api, namespace: str, node: str) -> float:
    """Seconds for the slowest of twenty questions to the extender."""
    asking = api.create(pods_of(namespace), pod("asks", container(memory="1Gi"), **GATED))
    body = json.dumps({"Pod": asking, "NodeNames": [node]}).encode()
    longest = 0.0
    for _ in range(20):
        began = time.monotonic()
        status, _ = cotenant.asks_extender(cotenant.addresses[0], "/filter", body)
        longest = max(longest, time.monotonic() - began)
        assert status == 200
    return longest
