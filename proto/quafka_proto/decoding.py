"""Compiles a struct's description, for one version, into a function that reads the struct.

For any bytes, a compiled function returns a struct, or raises Malformed or one of `GARBLED`. Before
it allocates, it checks counts against the remaining bytes and items, and lengths of strings and
bytes against the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from quafka_proto.errors import Malformed
from quafka_proto.function_source import FIXED, Source, is_fixed, several
from quafka_proto.message import Field, Struct
from quafka_proto.primitives import STRING_LIMIT, TAGGED_LIMIT, read_uvarint, skip_tagged

Decoder = Callable[[bytes, int, int, "list[int]"], "tuple[Any, int]"]
"""(frame, position, end, items left) -> (struct, position after it)."""
GARBLED = (IndexError, struct.error, UnicodeDecodeError)
"""Also raised by a compiled function, like Malformed, if bytes end early or are not UTF-8."""


@cache
def decoder(owner: type[Struct], version: int, flexible: bool) -> Decoder:
    """The function that reads this struct in this version."""
    return DecoderSource(owner, version, flexible, RUNTIME).compile()


def _null(what: str) -> Malformed:
    return Malformed(f"{what} is null")


def _long(what: str) -> Malformed:
    return Malformed(f"{what} is longer than its message")


def _many() -> Malformed:
    return Malformed("the message has too many items")


RUNTIME: dict[str, Any] = {
    "Malformed": Malformed,
    "_uvarint": read_uvarint,
    "_skip_tagged": skip_tagged,
    "_null": _null,
    "_long": _long,
    "_many": _many,
    "_unpack_from": struct.unpack_from,
    "memoryview": memoryview,
    "_new": object.__new__,
}


_SLICES = {
    "string": "data[at:stop].decode()",
    "bytes": "data[at:stop]",
    "records": "memoryview(data)[at:stop]",
}


class DecoderSource(Source):
    """The source of a function that reads a struct in one step."""

    def compile(self) -> Decoder:
        for run in self.runs():
            if is_fixed(run[0][1]):
                self._fixed_run(run)
            else:
                self._variable(f"f_{run[0][0]}", *run[0])
        if self.flexible:
            self._tagged_fields()
        owner = self.name("owner", self.owner)
        self.emit(f"made = _new({owner})")  # cheaper than a call of __init__
        for name, field in self.owner.FIELDS.items():
            if self._read(name):
                self.emit(f"made.{name} = f_{name}")
            else:
                self._default_of(name, field)
                self.emit(f"made.{name} = _d_{name}")
        self.emit("return made, at")
        return cast(Decoder, self.finish("def compiled(data, at, end, left):"))

    def _read(self, name: str) -> bool:
        return any(name == n for n, _ in (*self.plain, *self.tagged))

    def _default_of(self, name: str, field: Field) -> None:
        if field.kind in ("array", "struct"):
            fresh = self.name("fresh", field.fresh_default)
            self.emit(f"_d_{name} = {fresh}()")
        else:
            self.scope[f"_d_{name}"] = field.default

    def _fixed_run(self, run: list[tuple[str, Field]]) -> None:
        form = struct.Struct(">" + "".join(field.kind for _, field in run))
        unpack = self.name("unpack", form.unpack_from)
        self.emit(f"{', '.join(f'f_{name}' for name, _ in run)}, = {unpack}(data, at)")
        self.emit(f"at += {form.size}")

    def _length(self, local: str, name: str, field: Field) -> None:
        """Read a length or count into `n`; -1 is null, which is checked."""
        text = field.kind == "string"
        if self.flexible:
            self.emit("n = data[at] - 1")
            self.emit("at += 1")
            self.emit("if n >= 127:")
            if not text:  # the length of a record batch usually takes two bytes
                self.emit("    more = data[at]")
                self.emit("    if more < 128:")
                self.emit("        n += (more << 7) - 128")
                self.emit("        at += 1")
                self.emit("    else:")
                self.emit("        n, at = _uvarint(data, at - 1)")
                self.emit("        n -= 1")
            else:
                self.emit("    n, at = _uvarint(data, at - 1)")
                self.emit("    n -= 1")
                self.emit(f"    if n > {STRING_LIMIT}:")
                self.emit(f"        raise _long({name!r})")
        else:
            code, size = ("h", 2) if text else ("i", 4)
            unpack = self.name("length", struct.Struct(f">{code}").unpack_from)
            self.emit(f"n, = {unpack}(data, at)")
            self.emit(f"at += {size}")
        self.emit("if n < 0:")
        if self.version in field.nullable:
            self.emit(f"    {local} = None")
        else:
            self.emit(f"    raise _null({name!r})")

    def _variable(self, local: str, name: str, field: Field) -> None:
        """Read a value of variable width into the variable `local`."""
        if field.kind == "struct":
            self._struct(local, field)
            return
        self._length(local, name, field)
        self.emit("else:")
        self.indent += 1
        if field.kind == "array":
            self._items(local, name, field.element)
        else:
            self.emit("stop = at + n")
            self.emit("if stop > end:")
            self.emit(f"    raise _long({name!r})")
            self.emit(f"{local} = {_SLICES[field.kind]}")
            self.emit("at = stop")
        self.indent -= 1

    def nested(self, owner: type[Struct]) -> str:
        """The expression that reads a struct at `at`."""
        function = self.name("nested", decoder(owner, self.version, self.flexible))
        return f"{function}(data, at, end, left)"

    def _struct(self, local: str, field: Field) -> None:
        read = f"{local}, at = {self.nested(field.element)}"
        if self.version not in field.nullable:
            self.emit(read)
            return
        # A byte before the struct: negative if the struct is null.
        self.emit("at += 1")
        self.emit("if data[at - 1] > 127:")
        self.emit(f"    {local} = None")
        self.emit("else:")
        self.emit(f"    {read}")

    def _items(self, local: str, name: str, item: Field) -> None:
        smallest = _smallest(item, self.version, self.flexible)
        self.emit(f"if n * {smallest} > end - at:")
        self.emit(f"    raise _long({name!r})")
        self.emit("left[0] -= n")
        self.emit("if left[0] < 0:")
        self.emit("    raise _many()")
        if is_fixed(item):
            self.fixed_items(local, item.kind, smallest)
            return
        self.emit(f"{local} = items = []")
        self.emit("for number in range(n):")
        self.indent += 1
        self._variable("item", name, item)
        self.emit("items.append(item)")
        self.item_done()
        self.indent -= 1

    def fixed_items(self, local: str, kind: str, size: int) -> None:
        """Read `n` values of fixed width into the list `local`."""
        self.emit(f"{local} = list(_unpack_from({several(kind, 'n')}, data, at))")
        self.emit(f"at += n * {size}")

    def item_done(self) -> None:
        """Called after each item of an array; its index is `number`."""

    def _tagged_fields(self) -> None:
        if not self.tagged:
            self.emit("if data[at]:")
            self.emit("    at = _skip_tagged(data, at, end, left)")
            self.emit("else:")
            self.emit("    at += 1")
            return
        for name, field in self.tagged:
            self._default_of(name, field)
            self.emit(f"f_{name} = _d_{name}")
        self.emit("count, at = _uvarint(data, at)")
        self.emit("left[0] -= count")
        self.emit(f"if left[0] < 0 or count > {TAGGED_LIMIT}:")
        self.emit("    raise _many()")
        self.emit("for _ in range(count):")
        self.indent += 1
        self.emit("tag, at = _uvarint(data, at)")
        self.emit("size, at = _uvarint(data, at)")
        self.emit("after = at + size")
        self.emit("if after > end:")
        self.emit("    raise _long('a tagged field')")
        for i, (name, field) in enumerate(self.tagged):
            self.emit(f"{'elif' if i else 'if'} tag == {field.tag}:")
            self.indent += 1
            if is_fixed(field):
                self._fixed_run([(name, field)])
            else:
                self._variable(f"f_{name}", name, field)
            self.emit("if at != after:")
            self.emit(f"    raise Malformed('the tagged field {name} has another length')")
            self.indent -= 1
        self.emit("at = after")
        self.indent -= 1


def _smallest(item: Field, version: int, flexible: bool) -> int:
    """The minimum size of an array's item in bytes; at least 1."""
    if is_fixed(item):
        return FIXED[item.kind]
    if version in item.nullable and item.kind == "struct":
        return 1
    if item.kind != "struct":
        return 1 if flexible else (2 if item.kind == "string" else 4)
    fields = cast("type[Struct]", item.element).FIELDS.values()
    plain = [f for f in fields if f.tag is None and version in f.versions]
    return max(1, sum(_smallest(f, version, flexible) for f in plain) + flexible)
