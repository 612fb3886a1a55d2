"""Sizes and times as people write and read them: 1GiB, 1.5MB, 250ms, 7d.

A setting or config is a plain number of the unit in its name (`wal.segment.bytes`,
`log.retention.ms`). A person may write another unit of the same kind instead. Kafka's protocol has
plain numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

_NUMBER = re.compile(r"([0-9][0-9_]{0,23}(?:\.[0-9]{1,24})?) ?([A-Za-z]{1,3})")
_PLAIN = re.compile(r"[0-9]{1,19}")
_NO_LIMIT = 1 << 62
_SIGNED = re.compile(r"-?\b[0-9]+\b")
_PARTS = re.compile(r"[._-]")
_BYTES_BY_ANOTHER_NAME = ("buffer.size", "datagram.size", "receive.size")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a plain number counts.

    Attributes:
        whole: what a value must be a whole number of, in words.
        factors: the units that may be written, in multiples of the smallest one.
        shown: those of them that are printed; of equally short numbers, the first one.
        base: the multiple that a plain number counts.
    """

    whole: str
    factors: Mapping[str, int]
    shown: tuple[str, ...]
    base: int = 1

    def plain(self, text: str) -> str:
        """The plain number for a value with a unit; any other text as it is.

        Raises:
            ValueError: the unit is of another kind, or the value is no whole number, in words.
        """
        found = _NUMBER.fullmatch(text.strip())
        if found is None:
            return text
        factor = self.factors.get(found[2])
        if factor is None:
            raise ValueError(
                f"{found[2]} is not a unit of {self.whole} ({', '.join(self.factors)})"
            )
        value = Fraction(found[1].replace("_", "")) * factor / self.base
        if value.denominator != 1:
            raise ValueError(f"{text} is not a whole number of {self.whole}")
        return str(value.numerator)

    def show(self, number: int) -> str:
        """A plain number with the unit that makes it shortest; the same number, never rounded.

        Numbers that stand for no limit have none.
        """
        smallest = number * self.base if number < _NO_LIMIT else 0
        fitting = [name for name in self.shown if smallest and smallest % self.factors[name] == 0]
        if not fitting:
            return str(number)
        # min takes the first of several: binary units before decimal ones.
        name = min(fitting, key=lambda name: len(str(smallest // self.factors[name])))
        return f"{smallest // self.factors[name]}{name}"

    def show_all(self, text: str) -> str:
        """A text with the numbers in it shown, as in "65536 to 17179869184"; -1 stays."""
        return _SIGNED.sub(
            lambda found: found[0] if found[0].startswith("-") else self.show(int(found[0])), text
        )


_BINARY = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
_DECIMAL = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
}  # fmt: skip
_TIMES = {"ms": 1, "s": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIMES_SHOWN = ("d", "h", "min", "s", "ms")

BYTES = Unit("bytes", _BINARY | _DECIMAL, (*reversed(_BINARY), "PB", "TB", "GB", "MB"))
MS = Unit("ms", _TIMES, _TIMES_SHOWN)
SECONDS = Unit("seconds", _TIMES, _TIMES_SHOWN, 1_000)
MINUTES = Unit("minutes", _TIMES, _TIMES_SHOWN, 60_000)
HOURS = Unit("hours", _TIMES, _TIMES_SHOWN, 3_600_000)

_BY_PART = {
    "bytes": BYTES, "byte": BYTES, "ms": MS, "seconds": SECONDS, "minutes": MINUTES,
    "hours": HOURS,
}  # fmt: skip


def unit_of(name: str) -> Unit | None:
    """The unit in the name of a setting, config, quota or limit; None: it has none."""
    if name.endswith(_BYTES_BY_ANOTHER_NAME):
        return BYTES
    parts = _PARTS.split(name)
    return next((unit for part, unit in _BY_PART.items() if part in parts), None)


def plain(name: str, text: str) -> str:
    """The plain number for the value of a setting, config, quota or limit.

    Raises:
        ValueError: see `Unit.plain`.
    """
    unit = unit_of(name)
    return text if unit is None else unit.plain(text)


def with_unit(name: str, text: str) -> str:
    """The value of a setting, config, quota or limit for people; what has no unit, as it is."""
    unit = unit_of(name)
    if unit is None or _PLAIN.fullmatch(text) is None:
        return text
    return unit.show(int(text))
