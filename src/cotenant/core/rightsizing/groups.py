"""Decides which containers share one figure.

All replicas of one version of a workload come from one template, which has one figure for each container:
their peaks are pooled. Where a source only has ids of containers, and those of one workload differ too much
to be replicas of one thing, each gets a figure of its own, and the others still tell what may come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cotenant.core.rightsizing.history import Pool, Track, span

ALIKE = 0.10
"""Containers without a template share one figure if, on average, the highest peak is at most this much above
their own.
"""
NEAR = 1.3
"""Of very many containers that are not alike, those are siblings that mostly hold as much, but for this
factor.
"""
MANY = 24
"""Containers of one workload: more that are not alike are hardly replicas of one thing."""
HANDOVER = 2
"""Buckets at either end of a life that do not count for how many GPUs an instance has."""
MOST_NAMES = 8
"""More containers of one workload than this are replicas: no pod has as many that use a GPU."""

Meaning = Literal["auto", "name", "instance"]
"""What a source's container column is: the name of a container in a template, or one running container."""


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The container of a template that samples belong to."""

    workload: str
    version: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Containers that get one figure together."""

    owner: Owner
    tracks: tuple[Track, ...]
    siblings: Pool
    """All containers whose peaks say what may come to these: themselves, and others of the workload."""
    now: int | None = None
    """Bytes that they ask for today on one GPU; None if that is not known."""
    shared_with: str = ""
    """Why the samples are not their own; empty if they are."""
    sliced: bool = False
    """Whether they take turns on a GPU with others, without an amount of their own: time-slicing."""
    denied: int = 0
    """Allocations that failed at what they ask for today: the peak does not show what they need."""
    former: float = 0.0
    """The highest of versions before this one, in bytes."""
    is_instance: bool = False
    """Whether the owner's container is a running one: its name in the template is not known."""

    @property
    def instances(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.instance for each in self.tracks))

    @property
    def gpus(self) -> int:
        """On how many GPUs one instance is at the same time. A pod may keep its name and move to another GPU:
        then it has both for a bucket.
        """
        found: dict[str, list[tuple[int, int]]] = {}
        for each in self.tracks:
            shorter = min(HANDOVER, (each.end - each.first - 1) // 2)
            changes = found.setdefault(each.instance, [])
            changes += [(each.first + shorter, 1), (each.end - shorter, -1)]
        return max((_most_at_once(each) for each in found.values()), default=1)

    def alive(self, since: int) -> list[str]:
        """Returns the instances with samples in or after the bucket `since`."""
        return list(dict.fromkeys(each.instance for each in self.tracks if each.end > since))


def _most_at_once(changes: list[tuple[int, int]]) -> int:
    most = count = 0
    for _, change in sorted(changes):  # of one bucket, those that end come first
        count += change
        most = max(most, count)
    return most


def pooled(tracks: Mapping[Owner, Sequence[Track]]) -> list[Group]:
    """Makes one group of each container of each version: their instances are replicas."""
    return [Group(owner, tuple(found), Pool(found)) for owner, found in sorted(tracks.items()) if found]


def newest_versions(groups: Sequence[Group], within: int) -> tuple[list[Group], list[Group]]:
    """Splits groups into those of the version of each workload that ran last, with others that ran until at
    most `within` buckets before, and those of versions that are gone.
    """
    ends: dict[tuple[str, str], int] = {}
    for each in groups:
        key, end = (each.owner.workload, each.owner.version), span(each.tracks)[1]
        ends[key] = max(ends.get(key, end), end)
    last: dict[str, int] = {}
    for (workload, _), end in ends.items():
        last[workload] = max(last.get(workload, end), end)
    running, gone = list[Group](), list[Group]()
    for each in groups:
        workload = each.owner.workload
        runs = ends[workload, each.owner.version] + within >= last[workload]
        (running if runs else gone).append(each)
    former: dict[tuple[str, str], float] = {}
    for each in gone:
        key = each.owner.workload, each.owner.container
        former[key] = max(former.get(key, 0.0), *(track.peak for track in each.tracks))
    return [
        replace(each, former=former.get((each.owner.workload, each.owner.container), 0.0)) for each in running
    ], gone


def by_column(
    tracks: Mapping[Owner, Sequence[Track]], meaning: Meaning = "auto"
) -> tuple[list[Group], dict[str, Literal["name", "instance"]]]:
    """Makes groups of series whose container may be a name or an instance; each has a track for each GPU.

    Returns them and the meaning that was taken for each workload.
    """
    by_version: dict[tuple[str, str], dict[str, tuple[Track, ...]]] = {}
    for owner, found in sorted(tracks.items()):
        own = tuple(replace(each, instance=owner.container) for each in found)
        by_version.setdefault((owner.workload, owner.version), {})[owner.container] = own
    groups: list[Group] = []
    taken: dict[str, Literal["name", "instance"]] = {}
    for (workload, version), named in by_version.items():
        instances = meaning == "instance" or (meaning == "auto" and look_like_instances(list(named)))
        taken[workload] = "instance" if instances else "name"
        everyone = tuple(track for own in named.values() for track in own)
        if not instances:
            groups += [Group(Owner(workload, version, name), own, Pool(own)) for name, own in named.items()]
        elif are_alike(everyone):
            groups.append(Group(Owner(workload, version), everyone, Pool(everyone)))
        else:
            pools = _near(named) if len(named) > MANY else dict.fromkeys(named, Pool(everyone))
            groups += [
                Group(Owner(workload, version, name), own, pools[name], is_instance=True)
                for name, own in named.items()
            ]
    return groups, taken


def _near(named: Mapping[str, tuple[Track, ...]]) -> dict[str, Pool]:
    """Pools those that mostly hold about as much: one label may be on several things."""
    levels = {name: max(1.0, *(each.typical for each in own)) for name, own in named.items()}
    pools: dict[str, Pool] = {}
    begin, members = 0.0, list[str]()
    for name in [*sorted(levels, key=lambda each: (levels[each], each)), None]:
        if name is not None and members and levels[name] <= begin * NEAR:
            members.append(name)
            continue
        pool = Pool([track for each in members for track in named[each]])
        pools.update(dict.fromkeys(members, pool))
        if name is not None:
            begin, members = levels[name], [name]
    return pools


def are_alike(tracks: Sequence[Track]) -> bool:
    """Whether one figure for all would waste little."""
    most = max(each.peak for each in tracks)
    return most > 0 and sum(most / max(each.peak, 1.0) - 1 for each in tracks) / len(tracks) <= ALIKE


_ID = re.compile(
    r"""
    (?=[^/]*\d) [0-9a-f]{12,}                                   # a container's id
    | [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}
    | \d{1,3}(?:\.\d{1,3}){3} (?: :\d+ )?                         # an address
    | .+-[bcdfghjklmnpqrstvwxz2456789]{5}                       # a pod of a ReplicaSet, Job or DaemonSet
    | \d+                                                       # a process
    """,
    re.VERBOSE | re.IGNORECASE,
)
_DIGIT = re.compile(r"[0-9]")


def look_like_instances(names: Sequence[str]) -> bool:
    """Guesses whether these values of one workload's container column are running containers.

    They are if there are too many for one pod, if they are ids, addresses, process numbers or pods' names, or
    if they begin alike and go on with something that has a digit: `web-0` and `web-1`, not `web` and `proxy`.
    """
    if len(names) > MOST_NAMES or all(_ID.fullmatch(each) for each in names):
        return True
    if len(names) < 2:
        return False
    first, last = min(names), max(names)
    alike = next((at for at, sign in enumerate(first) if sign != last[at]), len(first))
    while alike and first[alike - 1].isdigit():  # web-10 and web-11 differ by a number, not by a digit
        alike -= 1
    return alike > 0 and all(_DIGIT.search(each[alike:]) for each in names)
