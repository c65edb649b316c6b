"""Reads what NVIDIA's DCGM exporter reports: memory in use on each GPU, with the pod that holds the GPU.

It is for clusters where Cotenant does not run yet. Figures are in MiB. Without more it is the GPU's, and so a
pod's only where the pod has the GPU, or the MIG instance, for itself: with time-slicing the exporter writes
the same figure for each pod on the GPU, or for none. Exporters from 2026 on that run with
`--kubernetes-virtual-gpus` add up the processes of each pod, and report the GPU beside them in a series
without a pod: by that they are known.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cotenant.advice.container_series import Pods, owner_of
from cotenant.advice.gathered import Gathered, from_prometheus
from cotenant.advice.prometheus_reading import (
    Asked,
    Place,
    are_several,
    collect,
    count,
    instance_of,
    is_exported,
    place_of,
)
from cotenant.core.errors import CotenantError
from cotenant.core.rightsizing.groups import Group, Owner, pooled
from cotenant.core.rightsizing.history import Track
from cotenant.observe.prometheus import Labels, Line, Transport, instant

USED = ("DCGM_FI_DEV_FB_USED", "dcgm_fb_used")
"""The metric's name, and the one that it had before 2020."""
FREE = {"DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_FREE", "dcgm_fb_used": "dcgm_fb_free"}
MIB = float(1 << 20)
TOGETHER = 3
"""Points at which two pods must be seen on one GPU to share it: one after the other they meet in one."""
MORE = 0.05
"""Part of the points at which a pod's own figure may be above its GPU's: both are read at nearly the same
time.
"""
_EXPORTER = "dcgm-exporter"
_WHOSE = ("UUID", "uuid", "Hostname", "gpu", "GPU_I_ID")
"""Labels that name a GPU or a MIG instance."""


class NotAttributed(CotenantError):
    """The series name no pods."""


@dataclass(slots=True)
class _Sharing:
    """Finds pods that are on the same GPU at the same time."""

    holders: dict[str, dict[Place, set[float]]] = field(default_factory=dict)
    found: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Pods that share, by namespace and name, with the others."""

    def saw(self, line: Line, place: Place) -> None:
        if not place.pod:
            return
        held = self.holders.setdefault(place.gpu, {})
        times = set(line.times)
        for other, theirs in held.items():
            if (other.namespace, other.pod) != (place.namespace, place.pod) and len(
                times & theirs
            ) >= TOGETHER:
                for one, two in ((other, place), (place, other)):
                    self.found.setdefault((one.namespace, one.pod), set()).add(two.pod)
        held[place] = times  # those who share are in one answer, so the last stretch of each is enough


async def present(transport: Transport, asked: Asked) -> bool:
    return any([await count(transport, each, asked) for each in USED])


def gpu_of(labels: Labels) -> str:
    """Names the GPU or the MIG instance."""
    card = labels.get("UUID") or labels.get("uuid") or f"{labels.get('Hostname', '')}/{labels.get('gpu', '')}"
    part = labels.get("GPU_I_ID", "")
    return f"{card}/{part}" if part else card


async def read_dcgm(transport: Transport, asked: Asked, pods: Pods | None = None) -> Gathered:
    """Reads histories of pods: of those that share a GPU where the exporter counts by process."""
    metric = USED[0] if await count(transport, USED[0], asked) else USED[1]
    series = [labels for labels, _ in await instant(transport, f"last_over_time({metric}[1d])", asked.end)]
    exported = is_exported(series)

    def place(labels: Labels) -> Place:
        found = place_of(labels, gpu_of(labels), exported=exported)
        if found is None or (not exported and _EXPORTER in found.pod):
            return Place("", "", "", gpu_of(labels))  # the GPU's own, or one whose pod is the exporter
        return found

    sharing = _Sharing()
    collector, began = await collect(transport, metric, "", asked, place, sharing.saw, MIB)
    found, _ = collector.tracks()
    gpus = {where.gpu: track for where, track in found.items() if not where.pod}
    tracks = {
        where: track
        for where, track in found.items()
        if where.pod and asked.namespace in (None, where.namespace)
    }
    if not tracks:
        raise NotAttributed(
            f"{transport.name} has {len(series)} series of {metric} and none names a pod"
            f"{_of(asked.namespace)}: set DCGM_EXPORTER_KUBERNETES=true for the exporter, and mount "
            "/var/lib/kubelet/pod-resources into it"
        )
    cards = await _sizes(transport, metric, asked)
    by_owner: dict[Owner, list[Track]] = {}
    shared: dict[Owner, set[str]] = {}
    sliced: set[Owner] = set()
    unknown: set[tuple[str, str]] = set()
    known, several = pods or {}, are_several(tracks)
    for where, track in tracks.items():
        owner, pod = owner_of(where, known), (where.namespace, where.pod)
        own: Track | None = track
        if others := sharing.found.get(pod):
            sliced.add(owner)
            own = own_part(track, gpus.get(where.gpu), collector.step)
            if own is None:
                shared.setdefault(owner, set()).update(others)
                unknown.add(pod)
        kept = own or track
        by_owner.setdefault(owner, []).append(
            replace(
                kept,
                instance=instance_of(where, several=several),
                gpu=where.gpu,
                samples=len(kept.buckets),
            )
        )
    described = [
        replace(each, shared_with=_why(shared.get(each.owner, ())), sliced=True)
        if each.owner in sliced
        else replace(each, now=_size(each, cards))
        for each in pooled(by_owner)
    ]
    notes = _notes({(where.namespace, where.pod) for where in tracks} & sharing.found.keys(), unknown)
    read = from_prometheus(transport.name, collector.step, described, tracks.values())
    return replace(read, began=began, notes=tuple(notes), cards=cards, whole=True)


def own_part(track: Track, gpu: Track | None, step: float) -> Track | None:
    """Returns what is a pod's own of its figures on a GPU that it shares; None if nothing is.

    That is what the exporter reported beside the GPU's own figure and that is mostly less than it. The GPU's
    series may also begin where the last pod ended, with less than the pod had.
    """
    if gpu is None:
        return None
    whole = dict(zip(gpu.buckets, gpu.peaks, strict=True))
    both = [
        (bucket, peak) for bucket, peak in zip(track.buckets, track.peaks, strict=True) if bucket in whole
    ]
    less = sum(peak < whole[bucket] for bucket, peak in both)
    more = sum(peak > whole[bucket] for bucket, peak in both)
    if len(both) < TOGETHER or less * 2 < len(both) or more > MORE * len(both):
        return None
    buckets, peaks = array("q", [bucket for bucket, _ in both]), array("d", [peak for _, peak in both])
    peak = max(peaks)
    at = buckets[peaks.index(peak)] * step
    return replace(track, buckets=buckets, peaks=peaks, samples=len(buckets), peak=peak, peak_at=at)


def _notes(sharing: set[tuple[str, str]], unknown: set[tuple[str, str]]) -> list[str]:
    known = sharing - unknown
    notes = []
    if known:
        notes.append(
            f"{len(known)} pods share a GPU by time-slicing; the exporter counts each by its processes"
        )
    else:
        notes.append(
            "figures are those of whole GPUs: what the driver and other programs hold there is included"
        )
    if unknown:
        notes.append(
            f"{len(unknown)} pods share a GPU by time-slicing: the exporter reports the GPU's figure "
            "for each, which belongs to none of them"
        )
    return notes


def _of(namespace: str | None) -> str:
    return "" if namespace is None else f" of namespace {namespace}"


def _size(group: Group, cards: Mapping[str, int]) -> int | None:
    """Returns the size of the largest GPU that one of them holds now."""
    return max((cards[each.gpu] for each in group.tracks if each.gpu in cards), default=None)


def _why(others: Collection[str]) -> str:
    """Says why figures are not a workload's own; nothing if they are."""
    if not others:
        return ""
    named = ", ".join(sorted(others)[:3]) + (" and others" if len(others) > 3 else "")
    return (
        f"it shares a GPU with {named}, and the exporter only knows the GPU's memory: run a newer exporter "
        "with --kubernetes-virtual-gpus, let Cotenant observe it (cotenant.dev/enforce: observe), or give it "
        "a GPU for itself for a day"
    )


async def _sizes(transport: Transport, metric: str, asked: Asked) -> dict[str, int]:
    """Adds up what is used and free of each GPU at one moment, of several in the last day: pods come and go,
    and of those that share a GPU some figures are their own.
    """
    used, free = (f"max by ({', '.join(_WHOSE)}) ({each})" for each in (metric, FREE[metric]))
    query = f"max_over_time(({used} + {free})[1d:15m])"
    found: dict[str, int] = {}
    for labels, value in await instant(transport, query, asked.end):
        gpu = gpu_of(labels)
        found[gpu] = max(found.get(gpu, 0), int(value * MIB))
    return found
