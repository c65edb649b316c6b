"""Reads what NVIDIA's DCGM exporter reports: memory in use on each GPU, with the pod that holds the GPU.

It is for clusters where Cotenant does not run yet. The figure is the GPU's, in MiB. So it is a pod's only
where the pod has the GPU, or the MIG instance, for itself. With time-slicing the exporter writes the same
figure for each pod on the GPU, or for none: it cannot be attributed, and is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cotenant.advice.container_series import Pods, owner_of
from cotenant.advice.gathered import OVERLAP, Gathered
from cotenant.advice.prometheus_reading import Asked, Place, collect, count, is_exported, place_of
from cotenant.core.errors import CotenantError
from cotenant.core.rightsizing.groups import Group, Owner, newest_versions, pooled
from cotenant.core.rightsizing.history import Track
from cotenant.observe.prometheus import Labels, Line, Transport, instant

USED = ("DCGM_FI_DEV_FB_USED", "dcgm_fb_used")
"""The metric's name, and the one that it had before 2020."""
FREE = {"DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_FREE", "dcgm_fb_used": "dcgm_fb_free"}
MIB = float(1 << 20)
TOGETHER = 3
"""Points at which two pods must be seen on one GPU to share it: one after the other they meet in one."""
_EXPORTER = "dcgm-exporter"


class NotAttributed(CotenantError):
    """The series name no pods."""


@dataclass(slots=True)
class _Sharing:
    """Finds pods that are on the same GPU at the same time."""

    holders: dict[str, dict[Place, set[float]]] = field(default_factory=dict)
    found: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Pods that share, by namespace and name, with the others."""

    def saw(self, line: Line, place: Place) -> None:
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
    """Reads histories of all pods that have GPUs for themselves."""
    metric = USED[0] if await count(transport, USED[0], asked) else USED[1]
    series = [labels for labels, _ in await instant(transport, f"last_over_time({metric}[1d])", asked.end)]
    exported = is_exported(series)

    def place(labels: Labels) -> Place | None:
        found = place_of(labels, gpu_of(labels), exported=exported)
        if found is None or (not exported and _EXPORTER in found.pod):
            return None  # the GPU's own series, or one whose pod is the exporter
        return found if asked.namespace in (None, found.namespace) else None

    sharing = _Sharing()
    collector, began = await collect(transport, metric, "", asked, place, sharing.saw, MIB)
    tracks, _ = collector.tracks()
    if not tracks:
        raise NotAttributed(
            f"{transport.name} has {len(series)} series of {metric} and none names a pod"
            f"{_of(asked.namespace)}: set DCGM_EXPORTER_KUBERNETES=true for the exporter, and mount "
            "/var/lib/kubelet/pod-resources into it"
        )
    cards = await _sizes(transport, metric, asked)
    by_owner: dict[Owner, list[Track]] = {}
    shared: dict[Owner, set[str]] = {}
    known = pods or {}
    for where, track in tracks.items():
        owner = owner_of(where, known)
        by_owner.setdefault(owner, []).append(
            replace(track, instance=where.pod, gpu=where.gpu, samples=len(track.buckets))
        )
        if others := sharing.found.get((where.namespace, where.pod)):
            shared.setdefault(owner, set()).update(others)
    described = [_described(each, shared.get(each.owner), cards) for each in pooled(by_owner)]
    running, past = newest_versions(described, OVERLAP)
    notes = ["figures are those of whole GPUs: what the driver and other programs hold there is included"]
    if shared:
        notes.append(
            f"{len(sharing.found)} pods share a GPU by time-slicing: the exporter reports the GPU's figure "
            "for each, which belongs to none of them"
        )
    return Gathered(
        tuple(running),
        collector.step,
        transport.name,
        starts_are_seen=True,
        samples=sum(len(each.buckets) for each in tracks.values()),
        past=tuple(past),
        began=began,
        notes=tuple(notes),
        cards=cards,
        whole=True,
    )


def _of(namespace: str | None) -> str:
    return "" if namespace is None else f" of namespace {namespace}"


def _described(group: Group, others: set[str] | None, cards: Mapping[str, int]) -> Group:
    """Adds the size of the GPU that it holds now, and why the figures are not its own."""
    sizes = [cards[each.gpu] for each in group.tracks if each.gpu in cards]
    why = ""
    if others:
        named = ", ".join(sorted(others)[:3]) + (" and others" if len(others) > 3 else "")
        why = (
            f"it shares a GPU with {named}, and the exporter only knows the GPU's memory: let Cotenant "
            "observe it (cotenant.dev/enforce: observe), or give it a GPU for itself for a day"
        )
    return replace(group, now=max(sizes, default=None), shared_with=why)


async def _sizes(transport: Transport, metric: str, asked: Asked) -> dict[str, int]:
    """Adds up what is used and free of each GPU: series with the same labels are of the same moment."""
    used: dict[frozenset[tuple[str, str]], float] = {}
    for labels, value in await instant(transport, f"last_over_time({metric}[1d])", asked.end):
        used[_without_name(labels)] = value
    found: dict[str, int] = {}
    for labels, value in await instant(transport, f"last_over_time({FREE[metric]}[1d])", asked.end):
        own = used.get(_without_name(labels))
        if own is not None:
            gpu = gpu_of(labels)
            found[gpu] = max(found.get(gpu, 0), int((own + value) * MIB))
    return found


def _without_name(labels: Labels) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels.items() if name != "__name__")
