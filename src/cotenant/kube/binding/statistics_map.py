"""Keeps the statistics of ended pods in a ConfigMap, over restarts and leaders.

A ConfigMap and not an annotation: all annotations of an object together have 256 KiB, and the one object that
the leader has anyway, its Lease, is written every few seconds, each time as a whole. What cannot be read is
ignored and overwritten: without it the policy only starts from the pods that run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cotenant.core.errors import BadInput
from cotenant.core.seen_pods import LONGEST_MODEL, MOST_KINDS, MOST_MODELS, MOST_PODS, SeenPods
from cotenant.kube.api.client import Client
from cotenant.kube.api.data_objects import write_data
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.resources import CONFIG_MAPS
from cotenant.kube.scheduling.pod_statistics import EndedPods

NAME = "cotenant-statistics"
KEY = "ended-pods.json"
VERSION = 1
LARGEST = 256 * 2**10
"""Bytes that are written; Kubernetes takes 1 MiB. A thousand usual kinds are half of this."""

_Amount = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Percent = Annotated[str, Meta(pattern=r"\A[0-9]{1,60}(/[0-9]{1,60})?\Z")]
"""A fraction: no exponent, which could make it a number of a billion digits."""
_Model = Annotated[str, Meta(min_length=1, max_length=LONGEST_MODEL)]


class _Demand(msgspec.Struct, frozen=True, omit_defaults=True):
    memory: _Amount | None = None
    percent: _Percent | None = None
    gpus: _Amount = 1
    whole: _Amount = 0
    models: Annotated[tuple[_Model, ...], Meta(max_length=MOST_MODELS)] = ()


class _Kind(msgspec.Struct, frozen=True, omit_defaults=True):
    count: Annotated[int, Meta(ge=1, le=MOST_PODS)]
    demand: _Demand | None = None
    cpu: _Amount = 0
    memory: _Amount = 0


class _Document(msgspec.Struct, frozen=True):
    version: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    since: Annotated[float, Meta(ge=0, le=1e11)]
    pods: _Amount
    kinds: Annotated[tuple[_Kind, ...], Meta(max_length=MOST_KINDS)]


_DECODER = msgspec.json.Decoder(_Document)


class NotStatistics(BadInput):
    """Somebody else wrote this, or a version that is not known."""


def encode(ended: EndedPods) -> str:
    """Writes the most frequent kinds first, as many as there is place for."""
    kinds, size = list[_Kind](), 0
    for each in ended.seen.to_json():
        try:
            kind = msgspec.convert(each, _Kind)
        except msgspec.ValidationError:
            continue  # what could not be read again would make the rest unreadable
        size += len(msgspec.json.encode(kind)) + 1
        if size > LARGEST - 1024:
            break
        kinds.append(kind)
    document = _Document(VERSION, float(round(ended.since or 0.0)), ended.pods, tuple(kinds))
    return msgspec.json.encode(document).decode()


def decode(text: Any) -> EndedPods:
    """Reads what `encode` wrote; NotStatistics if anything in it is not valid."""
    try:
        document = _DECODER.decode(text)
        seen = SeenPods.from_json(msgspec.to_builtins(each) for each in document.kinds)
    except (msgspec.MsgspecError, BadInput, TypeError, UnicodeError) as error:
        raise NotStatistics(f"ConfigMap {NAME}, key {KEY}: {error}") from None
    return EndedPods(seen, document.pods, document.since)


async def read_statistics(client: Client, namespace: str) -> EndedPods | None:
    """Returns what is kept; None if nothing is. NotStatistics if it is not valid."""
    try:
        found = await client.get(CONFIG_MAPS, NAME, namespace)
    except NotFound:
        return None
    return decode(found.data[KEY]) if KEY in found.data else None


async def write_statistics(
    client: Client, namespace: str, ended: EndedPods, may_write: Callable[[], object]
) -> bool:
    """Returns whether it had to be written: the newest leader's counts stand, whatever is there. Another
    writer is noticed by the resourceVersion. `may_write` raises if this server does not lead any more.
    """
    data = {KEY: encode(ended)}
    return await write_data(client, CONFIG_MAPS, NAME, namespace, data, may_write=may_write)
