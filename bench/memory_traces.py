"""Generates GPU-memory traces of serving containers, in families that grow, jump, spike and restart
differently.

No public trace is part of the repository, and advice that is fitted to one trace is worth little on the
next. So there are several families, each with parameters drawn by a seed. Those in `LATER` were written
after the two parts of the rule were fixed; how the headroom is chosen by back-test, and what the prior
weighs, was compared on `FAMILIES` and `LATER` together. Those in `HELD_OUT` were written after all that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GIB = float(1 << 30)
HOUR, DAY = 3600.0, 86400.0
INTERVALS = (15.0, 30.0, 60.0, 300.0)
CARDS = (16 * GIB, 24 * GIB, 48 * GIB, 80 * GIB)

Floats = NDArray[np.float64]
Random = np.random.Generator


@dataclass(frozen=True)
class Samples:
    """One container's samples: Unix seconds, bytes."""

    workload: str
    container: str
    times: Floats
    bytes: Floats

    def until(self, moment: float) -> Samples:
        kept = self.times <= moment
        return Samples(self.workload, self.container, self.times[kept], self.bytes[kept])

    def after(self, moment: float) -> Samples:
        kept = self.times > moment
        return Samples(self.workload, self.container, self.times[kept], self.bytes[kept])


Family = Callable[[Random, Floats, float, int], list[Floats]]
"""Makes the levels of a workload's containers at the given times: (random, times, size of a card,
containers).
"""


def _load(random: Random, times: Floats) -> Floats:
    """Draws a load over the days, from 0 to 1: hours of the day, weekends, noise that lasts for minutes."""
    phase, depth = random.uniform(0, DAY), random.uniform(0.2, 0.8)
    day = 0.5 + 0.5 * np.sin(2 * np.pi * (times + phase) / DAY)
    week = np.where((times // DAY + random.integers(7)) % 7 < 5, 1.0, random.uniform(0.5, 1.0))
    return np.clip((1 - depth) + depth * day * week + _noise(random, len(times), 0.05), 0, 1.2)


def _noise(random: Random, count: int, scale: float) -> Floats:
    return random.normal(0, scale, count)


def _stairs(random: Random, times: Floats, rate: float) -> Floats:
    """Numbers the stretches between random moments, `rate` of them a day."""
    span = float(times[-1] - times[0]) if len(times) else 0.0
    count = random.poisson(rate * span / DAY)
    moments = np.sort(random.uniform(times[0], times[-1], count)) if count else np.empty(0)
    return np.searchsorted(moments, times).astype(np.float64)


def _kept(levels: Floats, stretch: Floats) -> Floats:
    """What an allocator that never gives back holds: the highest so far in each stretch."""
    held = np.empty_like(levels)
    for each in np.unique(stretch):
        at = stretch == each
        held[at] = np.maximum.accumulate(levels[at])
    return held


def preallocated(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Weights and a cache that is reserved at the start: flat, but for a little that differs by restart."""
    level = card * random.uniform(0.2, 0.9)
    made = []
    for _ in range(count):
        restarts = _stairs(random, times, random.choice([0.0, 0.3]))
        by_restart = random.normal(1, 0.004, int(restarts[-1]) + 1)
        made.append(
            level * by_restart[restarts.astype(int)] * (1 + np.abs(_noise(random, len(times), 0.001)))
        )
    return made


def caches(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Caches and fragmentation: grows ever more slowly towards a limit, from the start again at a restart."""
    base, grows, slow = (
        card * random.uniform(0.1, 0.5),
        random.uniform(0.05, 0.6),
        random.uniform(4, 240) * HOUR,
    )
    made = []
    for _ in range(count):
        stretch = _stairs(random, times, random.choice([0.0, 0.1, 0.5]))
        age = times.copy()
        for each in np.unique(stretch):
            at = stretch == each
            before = random.exponential(slow) if each == 0 and random.random() < 0.6 else 0.0
            age[at] = times[at] - times[at][0] + before
        level = base * (1 + grows * random.uniform(0.7, 1.3) * (1 - np.exp(-age / slow)))
        made.append(_kept(level * (1 + _noise(random, len(times), 0.004)), stretch))
    return made


def requests(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Weights, and memory by request: most are small, a few are large, and some allocators keep what they
    had.
    """
    base, shape = card * random.uniform(0.15, 0.5), random.uniform(2.0, 5.0)
    scale, keeps = base * random.uniform(0.02, 0.2), random.random() < 0.4
    most = min(card, base * random.uniform(1.3, 2.5))
    made = []
    for _ in range(count):
        load = _load(random, times)
        size = scale * (random.pareto(shape, len(times)) + 0.2) * load
        level = np.minimum(base + size, most)
        made.append(_kept(level, _stairs(random, times, 0.2)) if keeps else level)
    return made


def models(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Containers that serve many models, one at a time: a reload has two for a moment, rare ones are
    larger.
    """
    catalogue = card * random.uniform(0.1, 0.5, random.integers(3, 30))
    popular = 1.0 / np.arange(1, len(catalogue) + 1) ** random.uniform(0.8, 1.6)
    popular /= popular.sum()
    rate = random.choice([0.5, 3.0, 12.0])
    made = []
    for _ in range(count):
        stretch = _stairs(random, times, rate).astype(int)
        liked = popular * random.lognormal(0, 1.0, len(popular))
        chosen = random.choice(len(catalogue), stretch[-1] + 1, p=liked / liked.sum())
        level = catalogue[chosen][stretch] * (1 + np.abs(_noise(random, len(times), 0.03)))
        reload = np.flatnonzero(np.diff(stretch)) + 1
        seen = reload[random.random(len(reload)) < 0.3]
        level[seen] += catalogue[chosen][stretch[seen] - 1] * random.uniform(0.2, 1.0, len(seen))
        made.append(np.minimum(level, card))
    return made


def daily(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Memory that follows how many requests are served at once, by day and by week."""
    base, per_load = card * random.uniform(0.2, 0.5), random.uniform(0.1, 0.7)
    shared = _load(random, times)
    return [
        np.minimum(card, base * (1 + per_load * np.clip(shared + _noise(random, len(times), 0.06), 0, 1.5)))
        for _ in range(count)
    ]


def unsteady(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Notebooks and batch jobs: each stretch has a size of its own."""
    made = []
    for _ in range(count):
        stretch = _stairs(random, times, random.uniform(0.3, 4)).astype(int)
        sizes = card * np.clip(random.lognormal(-1.5, 0.35, stretch[-1] + 1), 0.01, 0.95)
        made.append(sizes[stretch] * (1 + np.abs(_noise(random, len(times), 0.01))))
    return made


def tenants(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Replicas of one workload whose tenants differ: each has adapters and prompts of its own."""
    base = card * random.uniform(0.15, 0.4)
    made = []
    for _ in range(count):
        own = base * random.uniform(0.7, 1.6)
        adapters = np.cumsum(
            np.diff(_stairs(random, times, 1.5), prepend=0.0) * random.uniform(0, 1, len(times))
        )
        spikes = (random.random(len(times)) < 0.004) * random.exponential(0.12, len(times))
        made.append(np.minimum(card, own * (1 + 0.03 * np.minimum(adapters, random.integers(2, 8)) + spikes)))
    return made


def releases(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """New releases under the same name: at some moments the level of all replicas changes, mostly by
    little.
    """
    stretch = _stairs(random, times, random.choice([0.0, 0.1, 0.25])).astype(int)
    change = np.cumprod(np.concatenate([[1.0], random.lognormal(0.01, 0.08, stretch[-1])]))
    level = card * random.uniform(0.2, 0.6) * change[stretch]
    return [
        np.minimum(card, level * random.normal(1, 0.01) * (1 + np.abs(_noise(random, len(times), 0.02))))
        for _ in range(count)
    ]


def loading(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """A cold start that takes more than all that follows, as where weights are converted on the card."""
    base, more = card * random.uniform(0.2, 0.5), random.uniform(1.0, 1.7)
    made = []
    for _ in range(count):
        stretch = _stairs(random, times, random.choice([0.1, 0.5, 2.0]))
        level = base * (1 + 0.1 * _load(random, times))
        begins = np.flatnonzero(np.diff(stretch, prepend=-1.0))
        for begin in begins:
            if random.random() < 0.7:
                level[begin : begin + 3] = base * more * random.uniform(0.95, 1.02)
        made.append(level)
    return made


def pictures(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Image generation: a base model and adapters that change, and images whose size sets short, high
    peaks.
    """
    small, large = sorted(card * random.uniform(0.12, 0.45, 2))
    sizes = np.array([1.0, 1.3, 1.9, 2.6, 4.0]) * random.uniform(0.02, 0.08) * card
    weights = np.array([0.6, 0.25, 0.1, 0.04, 0.01])
    made = []
    for _ in range(count):
        stretch = _stairs(random, times, random.choice([1.0, 6.0])).astype(int)
        base = np.where(random.random(stretch[-1] + 1) < random.beta(0.7, 1.5), large, small)
        busy = random.random(len(times)) < 0.15 * _load(random, times)
        image = random.choice(sizes, len(times), p=weights) * busy
        level = base[stretch] + image
        made.append(np.minimum(card, _kept(level, stretch) if random.random() < 0.3 else level))
    return made


def sessions(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Chat sessions whose contexts add up: how many there are follows the load, how long they are is
    heavy-tailed.
    """
    base, each = card * random.uniform(0.15, 0.45), card * random.uniform(0.005, 0.03)
    most = card * random.uniform(0.7, 0.95)
    made = []
    for _ in range(count):
        load = _load(random, times) * random.uniform(0.7, 1.3)
        open_at_once = random.poisson(np.maximum(load, 0.01) * 6)
        contexts = open_at_once * random.lognormal(0, random.uniform(0.2, 0.5), len(times))
        made.append(np.minimum(base + each * contexts, most))
    return made


def batches(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Workers of a queue: between jobs they hold a context, in jobs what the kind of job needs."""
    kinds = card * np.sort(random.uniform(0.1, 0.8, random.integers(2, 6)))
    weights = random.dirichlet(np.full(len(kinds), 0.8))
    idle = 0.4 * GIB
    made = []
    for _ in range(count):
        stretch = _stairs(random, times, random.choice([6.0, 24.0])).astype(int)
        chosen = random.choice(len(kinds), stretch[-1] + 1, p=weights)
        works = random.random(stretch[-1] + 1) < random.uniform(0.2, 0.9)
        level = np.where(works, kinds[chosen] * random.uniform(0.9, 1.0, stretch[-1] + 1), idle)
        made.append(level[stretch])
    return made


def hubs(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """A server of many models that loads each at its first request and keeps it as long as there is room."""
    sizes = card * random.uniform(0.02, 0.2, random.integers(4, 16))
    rates = random.lognormal(0, 2.0, len(sizes))
    made = []
    for _ in range(count):
        held = np.full(len(times), 0.5 * GIB)
        for size, rate in zip(sizes, rates, strict=True):
            first = times[0] + random.exponential(DAY / rate) - random.uniform(0, 2) * DAY
            held += size * (times >= first)
        made.append(np.minimum(held, card * 0.9))
    return made


def leaks(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Memory that leaks until the container is restarted, at a level or by a person every few days."""
    base, limit = card * random.uniform(0.2, 0.4), card * random.uniform(0.5, 0.95)
    made = []
    for _ in range(count):
        slope = base * random.lognormal(-2.5, 0.8) / DAY
        period = min((limit - base) / slope, DAY * random.uniform(1, 10))
        age = (times - times[0] + random.uniform(0, period)) % period
        made.append(base + slope * age + base * 0.01 * np.abs(_noise(random, len(times), 1.0)))
    return made


def bursts(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Rare floods of large requests that reach all replicas within an hour, some of them more than others."""
    base = card * random.uniform(0.2, 0.5)
    flood = np.zeros(len(times))
    for _ in range(random.poisson((times[-1] - times[0]) / DAY * random.uniform(0.2, 2.0))):
        begin = random.uniform(times[0], times[-1])
        inside = (times >= begin) & (times < begin + random.exponential(HOUR))
        flood[inside] = np.maximum(flood[inside], random.uniform(0.05, 0.6))
    return [
        np.minimum(card, base * (1 + flood * random.uniform(0.5, 1.0) + 0.03 * random.random(len(times))))
        for _ in range(count)
    ]


def diffusion(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Image servers that swap base models: the one before goes when the next is loaded, adapters are merged
    in, side networks come with some requests, and what an image needs is kept until the next swap.
    """
    sizes = card * random.uniform(0.12, 0.3) * np.array([1.0, 1.0, 1.0, random.uniform(1.2, 2.0)])
    images = card * random.uniform(0.03, 0.1) * np.array([1.0, 1.4, 2.0, 3.0])
    side, empties = card * random.uniform(0.03, 0.1), random.random() < 0.5
    load, rate = _load(random, times), random.choice([4.0, 12.0, 48.0])
    made = []
    for _ in range(count):
        stretch = _stairs(random, times, rate).astype(int)
        base = sizes[random.integers(0, len(sizes), stretch[-1] + 1)]
        busy = random.random(len(times)) < random.uniform(0.05, 0.3) * load
        image = random.choice(images, len(times), p=[0.6, 0.25, 0.12, 0.03]) * busy
        image += side * (busy & (random.random(len(times)) < 0.2))
        level = base[stretch] + (image if empties else _kept(image, stretch))
        swap = np.flatnonzero(np.diff(stretch)) + 1
        level[swap] += base[stretch[swap] - 1] * (random.random(len(swap)) < 0.2)
        made.append(np.minimum(level, 0.97 * card))
    return made


def fragments(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """A caching allocator: it holds the largest working set so far and a part that no longer fits anything,
    which grows with the logarithm of the requests until a restart.
    """
    base, work = card * random.uniform(0.15, 0.5), random.uniform(0.05, 0.4)
    grows, restarts = random.uniform(0.0, 0.06), random.choice([0.0, 0.2, 1.0])
    made = []
    for _ in range(count):
        stretch = _stairs(random, times, restarts)
        begins = np.flatnonzero(np.diff(stretch, prepend=-1.0))
        age = np.arange(len(times)) - begins[np.searchsorted(begins, np.arange(len(times)), "right") - 1]
        age = age + (random.integers(0, len(times)) if random.random() < 0.7 else 0) * (stretch == 0)
        need = base * (1 + work * random.beta(2, 5, len(times)) * _load(random, times))
        made.append(np.minimum(card, _kept(need * (1 + grows * np.log1p(age / 60.0)), stretch)))
    return made


def engines(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Language models with a cache that is reserved at the start, and workspaces that come with the first
    batch of a new shape, each once.
    """
    level, works = card * random.uniform(0.5, 0.92), card * random.uniform(0.0, 0.03)
    made = []
    for _ in range(count):
        shapes = np.minimum(_stairs(random, times, random.uniform(0.5, 6.0)), 6.0)
        known = random.integers(0, 5)
        made.append(np.minimum(card, level * random.normal(1, 0.003) + works * np.minimum(shapes + known, 6)))
    return made


def kernels(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Notebooks of people: by day a kernel fills with what its cells leave, at night it idles or ends."""
    made = []
    for _ in range(count):
        usual, phase = card * random.lognormal(-1.6, 0.5), random.uniform(-2, 2) * HOUR
        day = ((times + phase) // DAY).astype(int)
        day -= day.min()
        hour = (times + phase) % DAY / HOUR
        works = random.random(day[-1] + 1) < 0.7
        most = np.minimum(0.95 * card, usual * random.lognormal(0, 0.3, day[-1] + 1))
        filled = np.clip((hour - 9) / random.uniform(1, 8), 0, 1)
        kept = np.where(
            hour < 9, 0.0, np.where(random.random(day[-1] + 1)[day] < 0.5, filled, filled * (hour < 19))
        )
        made.append(0.3 * GIB + most[day] * kept * works[day])
    return made


def fleets(random: Random, times: Floats, card: float, count: int) -> list[Floats]:
    """Pods of an autoscaled service: each lives for hours to days, warms up by its first requests, and takes
    more the more of its batch is full, which follows a load that all of them share.
    """
    base, batch = card * random.uniform(0.2, 0.5), random.uniform(0.1, 0.6)
    shared, warm = _load(random, times), random.uniform(0.2, 4) * HOUR
    made = []
    for _ in range(count):
        began = times[0] + random.uniform(-2 * DAY, 0.2 * DAY)
        full = np.clip(shared * random.uniform(0.7, 1.1) + _noise(random, len(times), 0.12), 0, 1)
        level = (
            base
            * (1 + batch * np.ceil(full * 8) / 8)
            * (1 - 0.2 * np.exp(-np.maximum(times - began, 0) / warm))
        )
        made.append(np.minimum(card, level))
    return made


FAMILIES: dict[str, Family] = {
    "preallocated": preallocated,
    "caches": caches,
    "requests": requests,
    "models": models,
    "daily": daily,
    "unsteady": unsteady,
    "tenants": tenants,
    "releases": releases,
    "loading": loading,
    "pictures": pictures,
}
LATER: dict[str, Family] = {
    "sessions": sessions,
    "batches": batches,
    "hubs": hubs,
    "leaks": leaks,
    "bursts": bursts,
}
HELD_OUT: dict[str, Family] = {
    "diffusion": diffusion,
    "fragments": fragments,
    "engines": engines,
    "kernels": kernels,
    "fleets": fleets,
}


def trace(families: dict[str, Family], seed: int, days: float = 7.0, containers: int = 120) -> list[Samples]:
    """Makes one trace: workloads of the families in turn, with gaps, late and short-lived containers.

    A third of the workloads has one container; the others have up to 12 replicas.
    """
    random = np.random.default_rng(seed)
    interval = float(random.choice(INTERVALS))
    grid = 1.7e9 + np.arange(0, days * DAY, interval)
    made: list[Samples] = []
    names = list(families)
    while len(made) < containers:
        name = names[int(random.integers(len(names)))]
        count = 1 if random.random() < 1 / 3 else int(random.integers(2, 13))
        workload = f"{name}-{len(made)}"
        levels = families[name](random, grid, float(random.choice(CARDS)), count)
        for number, level in enumerate(levels):
            kept = _alive(random, grid) & (random.random(len(grid)) > 0.01)
            for _ in range(random.poisson(days / 4)):  # gaps of scraping
                begin = random.uniform(grid[0], grid[-1])
                kept &= ~((grid >= begin) & (grid < begin + random.exponential(HOUR)))
            if kept.sum() > 10:
                made.append(
                    Samples(workload, f"{workload}-{number:x}{seed:04x}", grid[kept], level[kept].round())
                )
    return made


def _alive(random: Random, times: Floats) -> NDArray[np.bool_]:
    span, kind = float(times[-1] - times[0]), random.random()
    begin, end = float(times[0]), float(times[-1])
    if kind < 0.12:  # appears late
        begin += random.uniform(0, span)
    elif kind < 0.22:  # goes early
        end -= random.uniform(0, span)
    elif kind < 0.30:  # lives for a while
        begin += random.uniform(0, span)
        end = begin + random.exponential(span / 8)
    return (times >= begin) & (times <= end)


def write_csv(samples: list[Samples], path: str) -> None:
    """Writes them as `cotenant recommend --from-csv` reads them, in the order of time."""
    rows = [
        (at, each.workload, each.container, size)
        for each in samples
        for at, size in zip(each.times, each.bytes, strict=True)
    ]
    rows.sort()
    with open(path, "w", encoding="utf-8") as file:
        file.write("timestamp,workload,container,bytes\n")
        file.writelines(f"{at:.0f},{workload},{name},{size:.0f}\n" for at, workload, name, size in rows)
