"""The layout of a fixed-size structure: its fields in order, declared once, big-endian.

Each structure of Kafka's record batches and of our files is one `Layout`, in the module that
documents its bytes. A reader of a few fields, or of many structures as columns, derives its format
from the layout without repeating offsets.
"""

from __future__ import annotations

import struct

_COLUMN_TYPES = {
    "b": "i1", "B": "u1", "h": ">i2", "H": ">u2", "i": ">i4", "I": ">u4", "q": ">i8", "Q": ">i8",
}  # fmt: skip
"""Formats of `struct` as types of numpy. Offsets, positions and ids stay below 2**63, so their
columns are signed: numpy has no integer type for the sum of an int64 and a uint64."""


class Layout:
    """Named fields, each with its format as in `struct`: one of "bBhHiIqQ", "Ns" or "Nx".

    A field of format "Nx" is unused: zero when written, skipped when read.
    """

    def __init__(self, **fields: str) -> None:
        self._fields = fields
        self._ends: dict[str, int] = {}
        at = 0
        for name, form in fields.items():
            at += struct.calcsize(">" + form)
            self._ends[name] = at
        self.size = at
        self.whole = struct.Struct(">" + "".join(fields.values()))
        """Reads and writes all fields."""

    def offset(self, field: str) -> int:
        """The position of a field's first byte."""
        return self._ends[field] - struct.calcsize(">" + self._fields[field])

    def end(self, field: str) -> int:
        """The position after a field's last byte."""
        return self._ends[field]

    def before(self, field: str) -> struct.Struct:
        """Reads and writes all fields before this one, such as those that a checksum covers."""
        names = list(self._fields)
        return struct.Struct(
            ">" + "".join(map(self._fields.__getitem__, names[: names.index(field)]))
        )

    def part(self, *fields: str) -> struct.Struct:
        """Reads only these fields, in the layout's order; needs no bytes after the last of them."""
        return struct.Struct(self._skipping(fields, max(map(self.end, fields))))

    def part_of_each(self, *fields: str) -> struct.Struct:
        """As `part`, for `iter_unpack` over adjacent structures."""
        return struct.Struct(self._skipping(fields, self.size))

    def joined(self, name: str, first: str, last: str) -> Layout:
        """The same bytes, with the fields from `first` to `last` as one field of bytes."""
        names = list(self._fields)
        begin, end = names.index(first), names.index(last) + 1
        forms = [(each, self._fields[each]) for each in names]
        forms[begin:end] = [(name, f"{self.end(last) - self.offset(first)}s")]
        return Layout(**dict(forms))

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The fields in the form for `numpy.dtype`."""
        return [(name, _column_type(form)) for name, form in self._fields.items()]

    def _skipping(self, fields: tuple[str, ...], size: int) -> str:
        form, at = ">", 0
        for name in self._fields:
            if name in fields:
                form += f"{self.offset(name) - at}x{self._fields[name]}"
                at = self.end(name)
        return f"{form}{size - at}x"


def _column_type(form: str) -> str:
    kinds = {"s": "S", "x": "V"}
    return kinds[form[-1]] + form[:-1] if form[-1] in kinds else _COLUMN_TYPES[form]
