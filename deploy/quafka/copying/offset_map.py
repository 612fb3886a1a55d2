"""Which offset a record has in the copy of its partition.

Offsets of a copy differ from those of its source where the source has gaps (compaction, aborted
transactions, markers) and where the copy has markers of its own. The map is a list of runs: records
with consecutive offsets on both sides. Of old runs some are forgotten; a translation then returns
an offset that is too low, never one that is too high, so that a group repeats records but skips
none. MirrorMaker's offset syncs have the same property.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

_RECENT = 32
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Run(NamedTuple):
    """`length` records whose offsets begin at `source` and at `target`."""

    source: int
    target: int
    length: int


class OffsetTranslation:
    """Translates offsets of a partition into those of its copy."""

    def __init__(self, runs: Sequence[Run] = (), most: int = 4096) -> None:
        """`most`: how many runs are kept, at least 3."""
        self._sources = [run.source for run in runs]
        self._targets = [run.target for run in runs]
        self._lengths = [run.length for run in runs]
        self._most = most

    def add(self, source: int, target: int) -> None:
        """A record was copied; both offsets are above those of all earlier records."""
        if self._sources:
            length = self._lengths[-1]
            if (source, target) == (self._sources[-1] + length, self._targets[-1] + length):
                self._lengths[-1] += 1
                return
        self._sources.append(source)
        self._targets.append(target)
        self._lengths.append(1)
        if len(self._sources) > self._most:
            self._forget()

    def _forget(self) -> None:
        """Forget every other run of the older half, but never the first one."""
        half = len(self._sources) // 2
        for values in (self._sources, self._targets, self._lengths):
            values[:half] = values[:half:2]

    def translate(self, offset: int) -> int | None:
        """Where a group that continues at `offset` continues in the copy; None: nothing is copied.

        No record that the group has not consumed is below it.
        """
        if not self._sources:
            return None
        at = bisect_right(self._sources, offset) - 1
        if at < 0:
            return self._targets[0]
        return self._targets[at] + min(offset - self._sources[at], self._lengths[at])

    @property
    def runs(self) -> list[Run]:
        """All runs that are kept."""
        return list(map(Run, self._sources, self._targets, self._lengths))

    def packed(self) -> str:
        """The first run, the newest ones and ever fewer of those between, as text.

        At most about 2 KB: Kafka keeps 4 KB of metadata with a committed offset.
        """
        count = len(self._sources)
        chosen = {0, *range(max(0, count - _RECENT), count)} if count else set[int]()
        back = _RECENT
        while back < count:
            chosen.add(count - back)
            back *= 2
        words: list[str] = []
        source = target = 0
        for at in sorted(chosen):
            run = (self._sources[at] - source, self._targets[at] - target, self._lengths[at])
            words.append(".".join(map(_text, run)))
            source, target = self._sources[at], self._targets[at]
        return ",".join(words)

    @classmethod
    def unpacked(cls, text: str, most: int = 4096) -> OffsetTranslation:
        """The map of `packed`. Raises ValueError."""
        runs: list[Run] = []
        source = target = 0
        for word in filter(None, text.split(",")):
            more_source, more_target, length = (int(digits, 36) for digits in word.split("."))
            source, target = source + more_source, target + more_target
            runs.append(Run(source, target, length))
        return cls(runs, most)


def _text(number: int) -> str:
    """A number to the base of 36."""
    found = ""
    while True:
        number, digit = divmod(number, 36)
        found = _DIGITS[digit] + found
        if not number:
            return found
