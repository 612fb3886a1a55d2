"""Compiles a struct's description, for one version, into a function that writes the struct."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from quafka_proto.function_source import Source, is_fixed, several
from quafka_proto.message import Buffer, Encoded, Field, Struct
from quafka_proto.primitives import STRING_LIMIT, write_uvarint

Encoder = Callable[[Any, bytearray, "list[Buffer]"], bytearray]
"""(struct, tail, buffers) -> tail: the last bytes, which the caller appends to `buffers`."""


_ERROR_MESSAGE = "error_message"


@cache
def encoder(owner: type[Struct], version: int, flexible: bool) -> Encoder:
    """The function that writes this struct in this version."""
    return _EncoderSource(owner, version, flexible, _RUNTIME).compile()


def _long_string(size: int) -> ValueError:
    return ValueError(f"a string of {size} bytes is above Kafka's limit of {STRING_LIMIT}")


def _short(message: bytes) -> bytes:
    """Cut an error message to the limit of a string: it may quote a long part of the request."""
    if len(message) <= STRING_LIMIT:
        return message
    return message[:STRING_LIMIT].decode(errors="ignore").encode()


def _refer(encoded: Encoded, tail: bytearray, buffers: list[Buffer]) -> bytearray:
    """Append encoded items: small ones as a copy, others by reference."""
    if sum(map(len, encoded.buffers)) < _COPIED:
        for piece in encoded.buffers:
            tail += piece
        return tail
    buffers.append(tail)
    buffers += encoded.buffers
    return bytearray()


_COPIED = 4 << 10
_RUNTIME: dict[str, Any] = {
    "_Encoded": Encoded,
    "_refer": _refer,
    "_put_uvarint": write_uvarint,
    "_long_string": _long_string,
    "_pack": struct.pack,
    "_short": _short,
}


class _EncoderSource(Source):
    def compile(self) -> Encoder:
        for run in self.runs():
            if is_fixed(run[0][1]):
                form = struct.Struct(">" + "".join(field.kind for _, field in run))
                pack = self.name("pack", form.pack)
                self.emit(f"tail += {pack}({', '.join(f'o.{name}' for name, _ in run)})")
            else:
                self._variable(f"o.{run[0][0]}", run[0][0], run[0][1])
        if self.flexible:
            self._tagged_fields()
        self.emit("return tail")
        return cast(Encoder, self.finish("def compiled(o, tail, buffers):"))

    def _length(self, expression: str, wide: bool) -> None:
        """Write a length or count, given as an expression; -1 for null."""
        if not self.flexible:
            pack = self.name("length", struct.Struct(">i" if wide else ">h").pack)
            self.emit(f"tail += {pack}({expression})")
            return
        self.emit(f"n = {expression} + 1")
        self.emit("if n < 128:")
        self.emit("    tail.append(n)")
        self.emit("else:")
        if not wide:
            self.emit(f"    if n > {STRING_LIMIT + 1}:")
            self.emit("        raise _long_string(n - 1)")
        self.emit("    _put_uvarint(tail, n)")

    def _variable(self, value: str, name: str, field: Field) -> None:
        nullable = self.version in field.nullable
        if field.kind == "struct" and not nullable:
            self._struct(value, field)
            return
        self.emit(f"v = {value}")
        self.emit("if v is None:")
        self.indent += 1
        if nullable:
            self._null(field)
        else:
            self.emit(f"raise ValueError('{self.owner.__name__}.{name} may not be null')")
        self.indent -= 1
        self.emit("else:")
        self.indent += 1
        if field.kind == "array" and field.element.kind == "struct":
            self.emit("if type(v) is _Encoded:")
            self.indent += 1
            self._length("v.count", wide=True)
            self.emit("tail = _refer(v, tail, buffers)")
            self.indent -= 1
            self.emit("else:")
            self.indent += 1
            self._items(field.element)
            self.indent -= 1
        elif field.kind == "array":
            self._items(field.element)
        elif field.kind == "struct":
            self.emit("tail.append(1)")
            self._struct("v", field)
        elif field.kind in ("string", "bytes"):
            if field.kind == "string":
                self.emit("v = _short(v.encode())" if name == _ERROR_MESSAGE else "v = v.encode()")
            self._length("len(v)", wide=field.kind == "bytes")
            self.emit("tail += v")
        else:
            self.emit("v = v if type(v) is list else [v]")
            self._length("sum(map(len, v))", wide=True)
            self.emit("buffers.append(tail)")
            self.emit("buffers += v")
            self.emit("tail = bytearray()")
        self.indent -= 1

    def _null(self, field: Field) -> None:
        if field.kind == "struct":
            self.emit("tail.append(255)")
        elif self.flexible:
            self.emit("tail.append(0)")
        else:
            self._length("-1", wide=field.kind != "string")

    def _struct(self, value: str, field: Field) -> None:
        nested = self.name("nested", encoder(field.element, self.version, self.flexible))
        self.emit(f"tail = {nested}({value}, tail, buffers)")

    def _items(self, item: Field) -> None:
        self._length("len(v)", wide=True)
        if is_fixed(item):
            self.emit(f"tail += _pack({several(item.kind, 'len(v)')}, *v)")
            return
        self.emit("for item in v:")
        self.indent += 1
        self._variable("item", "item", item)
        self.indent -= 1

    def _tagged_fields(self) -> None:
        if not self.tagged:
            self.emit("tail.append(0)")
            return
        tagged = sorted(self.tagged, key=lambda entry: entry[1].tag or 0)
        differs = [self._differs(f"o.{name}", field) for name, field in tagged]
        self.emit(f"if not ({' or '.join(differs)}):")
        self.emit("    tail.append(0)")
        self.emit("    return tail")
        self.emit("tags = []")
        for (name, field), differ in zip(tagged, differs, strict=True):
            self.emit(f"if {differ}:")
            self.indent += 1
            self.emit("outer, tail = tail, bytearray()")
            if is_fixed(field):
                self.emit(f"tail += _pack('>{field.kind}', o.{name})")
            else:
                self._variable(f"o.{name}", name, field)
            self.emit(f"tags.append(({field.tag}, tail))")
            self.emit("tail = outer")
            self.indent -= 1
        self.emit("_put_uvarint(tail, len(tags))")
        self.emit("for tag, content in tags:")
        self.emit("    _put_uvarint(tail, tag)")
        self.emit("    _put_uvarint(tail, len(content))")
        self.emit("    tail += content")

    def _differs(self, value: str, field: Field) -> str:
        """An expression for "not the default". A struct's few numbers are compared in place."""
        default = field.fresh_default()
        if isinstance(default, Struct):
            inner = cast("type[Struct]", field.element).FIELDS
            if self.version not in field.nullable and all(map(is_fixed, inner.values())):
                return " or ".join(
                    f"{value}.{name} != {getattr(default, name)!r}" for name in inner
                )
        return f"{value} != {self.name('default', default)}"
