"""Collects samples of many containers, in any order, into histories of bounded size.

Of each bucket of time only the highest sample is kept. Buckets are in pieces of some hours that are made
when they are needed: one sample of a wrong year costs one piece. When there are too many pieces, buckets
become twice as long.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Generic, TypeAlias, TypeVar

from cotenant.core.rightsizing.history import Track

STEP = 300.0
"""Seconds of a bucket at first."""
PIECE = 64
"""Buckets of a piece."""
MOST_PIECES = 200_000
"""Of all series together: 130 MB. 500 containers have 68,000 in 30 days."""
LONGEST = 400 * 86400.0
"""Seconds. Samples outside the fullest stretch of this length have wrong times."""
_EMPTY = array("d", [-1.0] * PIECE)
_AT_ONCE = 4
"""Samples of one moment, on average, from which on moments are taken as a whole."""

K = TypeVar("K", bound=Hashable)
_Pieces: TypeAlias = "dict[int, array[float]]"


class Collector(Generic[K]):
    """Keeps the highest sample of each bucket for each key."""

    def __init__(self, step: float = STEP, most_pieces: int = MOST_PIECES) -> None:
        self.step = step
        self.series: dict[K, _Pieces] = {}
        self._pieces, self._most = 0, most_pieces
        self._samples: Counter[K] = Counter()
        self._bucket = 0.0
        self._current: dict[K, float] = {}
        """The highest of the bucket that samples come for now. Those of many containers mostly come
        together, and a dict of them takes less time than to look for the piece of each.
        """

    def __len__(self) -> int:
        """Counts the keys."""
        return len(self._samples)

    def add(self, key: K, at: float, value: float) -> None:
        """Adds a sample: Unix seconds and bytes, both finite, bytes not negative."""
        self.add_many((key,), (at,), (value,))

    def add_many(self, keys: Sequence[K], times: Sequence[float], values: Sequence[float]) -> None:
        """Adds samples, one of each list after the other. A large file takes most of its time here."""
        self._samples.update(keys)
        if len(set(times)) * _AT_ONCE <= len(times) and sorted(times) == list(times):
            self._add_moments(keys, times, values)
        else:
            self._add_one_by_one(keys, times, values)

    def add_line(self, key: K, times: Sequence[float], values: Sequence[float]) -> None:
        """Adds samples of one key, about one in each bucket."""
        number, piece, step = None, _EMPTY, self.step
        for at, value in zip(times, values, strict=True):
            bucket = int(at // step)
            if bucket // PIECE != number:
                number = bucket // PIECE
                piece = self._piece(key, number)
            if value > piece[bucket % PIECE]:  # noqa: PLR1730 -- max() takes three times as long
                piece[bucket % PIECE] = value
        self._samples[key] += len(times)
        self._keep_few()

    def _add_moments(self, keys: Sequence[K], times: Sequence[float], values: Sequence[float]) -> None:
        """Adds samples that are in the order of time, with many at each moment."""
        begin, rows = 0, len(times)
        while begin < rows:
            at = times[begin]
            end = bisect_right(times, at, begin)
            found = dict(zip(keys[begin:end], values[begin:end], strict=True))
            if len(found) < end - begin:  # several samples of one container: replicas that share a name
                self._add_one_by_one(keys[begin:end], times[begin:end], values[begin:end])
            elif at // self.step == self._bucket:
                self._merge(found)
            else:
                self._flush()
                self._bucket, self._current = at // self.step, found
            begin = end

    def _merge(self, found: dict[K, float]) -> None:
        current = self._current
        for key, value in found.items():
            if value > current.get(key, -1.0):
                current[key] = value

    def _add_one_by_one(self, keys: Sequence[K], times: Sequence[float], values: Sequence[float]) -> None:
        self._flush()
        last, bucket, high = None, 0.0, -1.0
        for key, at, value in zip(keys, times, values, strict=True):
            now = at // self.step
            if now == bucket and key == last:
                if value > high:  # noqa: PLR1730 -- a call of max() takes three times as long
                    high = value
                continue
            if last is not None:
                self._store(last, bucket, high)
            last, bucket, high = key, at // self.step, value
        if last is not None:
            self._store(last, bucket, high)

    def _flush(self) -> None:
        """Puts the current bucket into the pieces."""
        found, self._current = self._current, {}
        number, place = divmod(int(self._bucket), PIECE)
        for key, high in found.items():
            piece = self._piece(key, number)
            if high > piece[place]:  # noqa: PLR1730 -- a call of max() takes three times as long
                piece[place] = high
        self._keep_few()

    def _store(self, key: K, bucket: float, high: float) -> None:
        number, place = divmod(int(bucket), PIECE)
        piece = self._piece(key, number)
        piece[place] = max(piece[place], high)
        self._keep_few()

    def _piece(self, key: K, number: int) -> array[float]:
        pieces = self.series.get(key)
        if pieces is None:
            pieces = self.series[key] = {}
        piece = pieces.get(number)
        if piece is None:
            piece = pieces[number] = array("d", _EMPTY)
            self._pieces += 1
        return piece

    def absorb(self, other: Collector[K]) -> None:
        """Adds all that another has collected; the other is of no use after that."""
        self._flush()
        other._flush()
        while self.step < other.step:
            self._double()
        while other.step < self.step:
            other._double()
        for key, pieces in other.series.items():
            own = self.series.setdefault(key, {})
            for number, piece in pieces.items():
                if number in own:
                    own[number] = array("d", map(max, own[number], piece))
                else:
                    own[number] = piece
                    self._pieces += 1
        self._samples.update(other._samples)
        self._keep_few()

    def tracks(self) -> tuple[dict[K, Track], int]:
        """Returns the histories, and how many buckets were left out because their times are far from all
        others. A key whose samples are all left out has no history. `instance` and `gpu` are the caller's.
        """
        self._flush()
        first, end = self._fullest()
        made, dropped = dict[K, Track](), 0
        for key, pieces in self.series.items():
            buckets, peaks = array("q"), array("d")
            for number in sorted(pieces):
                begin, piece = number * PIECE, pieces[number]
                if not first <= number < end:
                    dropped += sum(high >= 0 for high in piece)
                elif min(piece) >= 0:
                    buckets.extend(range(begin, begin + PIECE))
                    peaks.extend(piece)
                else:
                    filled = [place for place, high in enumerate(piece) if high >= 0]
                    buckets.extend(begin + place for place in filled)
                    peaks.extend(piece[place] for place in filled)
            if buckets:
                highest = max(peaks)
                at = buckets[peaks.index(highest)] * self.step
                made[key] = Track("", "", buckets, peaks, self._samples[key], highest, at)
        return made, dropped

    def _fullest(self) -> tuple[int, int]:
        """Finds the stretch of LONGEST with the most buckets that have samples; returns the numbers of its
        first piece and of the one after its last.
        """
        numbers = sorted({number for pieces in self.series.values() for number in pieces})
        if not numbers:
            return 0, 0
        length = int(LONGEST / self.step / PIECE) + 1
        if numbers[-1] - numbers[0] < length:
            return numbers[0], numbers[0] + length
        counts: Counter[int] = Counter()
        for pieces in self.series.values():
            for number, piece in pieces.items():
                counts[number] += sum(high >= 0 for high in piece)
        best, best_at, begin, held = 0, numbers[0], 0, 0
        for number in numbers:
            held += counts[number]
            while numbers[begin] <= number - length:
                held -= counts[numbers[begin]]
                begin += 1
            if held > best:
                best, best_at = held, numbers[begin]
        return best_at, best_at + length

    def _keep_few(self) -> None:
        """Makes buckets longer when there are too many pieces, until there are half as many as there may
        be.
        """
        if self._pieces <= self._most:
            return
        while self._pieces > self._most // 2:
            self._double()
            if self._pieces <= len(self.series) * 2:  # longer buckets would save nothing more
                self._most = max(self._most, 4 * self._pieces)
                return

    def _double(self) -> None:
        """Makes buckets twice as long."""
        self.step *= 2
        self._pieces = 0
        for key, pieces in self.series.items():
            wider: _Pieces = {}
            for number, piece in pieces.items():
                into = wider.get(number // 2)
                if into is None:
                    into = wider[number // 2] = array("d", _EMPTY)
                offset = number % 2 * (PIECE // 2)
                for place in range(0, PIECE, 2):
                    into[offset + place // 2] = max(piece[place], piece[place + 1])
            self.series[key] = wider
            self._pieces += len(wider)
