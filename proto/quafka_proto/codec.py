"""Compiles message descriptions into decode and encode functions, lazily, per (struct, version).

A compiled function is plain Python made for one version: runs of fixed-width fields are one
struct call, length prefixes are read inline, fields of other versions do not occur. Whatever the
bytes are, decoding gives a message or raises Malformed: counts are checked against the bytes that
remain and against the message type's `item_limit` before anything is allocated, strings and bytes
against the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar, cast

from quafka_proto.errors import Malformed
from quafka_proto.message import Buffer, Field, Message, Struct
from quafka_proto.primitives import STRING_LIMIT, read_uvarint, skip_tagged, write_uvarint

M = TypeVar("M", bound=Message)

Decoder = Callable[[bytes, int, int, "list[int]"], "tuple[Any, int]"]
"""(frame, position, end, items left) -> (struct, position behind it)."""
Encoder = Callable[[Any, bytearray, "list[Buffer]"], bytearray]
"""(struct, tail, buffers) -> tail: what goes behind `buffers`, once nothing more follows."""

_compiled: dict[tuple[type[Struct], int, bool], tuple[Decoder, Encoder]] = {}
_messages: dict[tuple[type[Message], int], tuple[Decoder, Encoder]] = {}


def decode(message_type: type[M], version: int, data: bytes, offset: int = 0) -> M:
    """Decode a whole message: all of `data` from `offset` on.

    Raises:
        Malformed: too short, too long, or a value that the version does not allow.
        ValueError: the message type does not describe this version.
    """
    functions = _messages.get((message_type, version)) or _functions(message_type, version)
    end = len(data)
    try:
        message, at = functions[0](data, offset, end, [message_type.item_limit])
    except (IndexError, struct.error, UnicodeDecodeError) as e:
        raise Malformed(f"{message_type.__name__} v{version} is cut short or garbled: {e}") from e
    if at != end:
        raise Malformed(f"{message_type.__name__} v{version} is followed by {end - at} bytes")
    return cast(M, message)


def encode(message: Message, version: int) -> list[Buffer]:
    """Encode a message. Record bytes are passed on by reference, never copied or joined.

    Raises:
        ValueError: a value that does not fit its field, null where the version has no null, or a
            version that the message type does not describe.
    """
    key = (type(message), version)
    functions = _messages.get(key) or _functions(*key)
    buffers: list[Buffer] = []
    try:
        buffers.append(functions[1](message, bytearray(), buffers))
    except struct.error as e:
        raise ValueError(f"{type(message).__name__} v{version} cannot be encoded: {e}") from e
    return buffers


def _functions(message_type: type[Message], version: int) -> tuple[Decoder, Encoder]:
    if version not in message_type.versions:
        raise ValueError(f"{message_type.__name__} has no version {version}")
    functions = _compile(message_type, version, version in message_type.flexible)
    _messages[message_type, version] = functions
    return functions


def _compile(owner: type[Struct], version: int, flexible: bool) -> tuple[Decoder, Encoder]:
    key = (owner, version, flexible)
    if key not in _compiled:
        _compiled[key] = (
            _DecoderSource(owner, version, flexible).compile(),
            _EncoderSource(owner, version, flexible).compile(),
        )
    return _compiled[key]


# --- what compiled functions call -----------------------------------------------------------


def _size_of(value: Any) -> int:
    return sum(map(len, cast("list[Buffer]", value))) if type(value) is list else len(value)


def _null(what: str) -> Malformed:
    return Malformed(f"{what} is null")


def _long(what: str) -> Malformed:
    return Malformed(f"{what} is longer than its message")


def _many() -> Malformed:
    return Malformed("the message has too many items")


def _long_string(size: int) -> ValueError:
    return ValueError(f"a string of {size} bytes is above Kafka's limit of {STRING_LIMIT}")


_RUNTIME: dict[str, Any] = {
    "Malformed": Malformed,
    "_uvarint": read_uvarint,
    "_put_uvarint": write_uvarint,
    "_skip_tagged": skip_tagged,
    "_size_of": _size_of,
    "_null": _null,
    "_long": _long,
    "_many": _many,
    "_long_string": _long_string,
    "_unpack_from": struct.unpack_from,
    "_pack": struct.pack,
    "memoryview": memoryview,
}


class _Source:
    """One function's source under construction."""

    def __init__(self, owner: type[Struct], version: int, flexible: bool) -> None:
        self.owner = owner
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.scope = dict(_RUNTIME)
        self.indent = 1
        present = [(n, f) for n, f in owner.FIELDS.items() if version in f.versions]
        self.plain = [(n, f) for n, f in present if f.tag is None]
        self.tagged = [(n, f) for n, f in present if f.tag is not None and flexible]

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, stem: str, value: Any) -> str:
        """A name in the function's scope for `value`."""
        name = f"_{stem}{len(self.scope)}"
        self.scope[name] = value
        return name

    def runs(self) -> list[list[tuple[str, Field]]]:
        """The plain fields, neighbouring fixed-width ones together."""
        runs: list[list[tuple[str, Field]]] = []
        for name, field in self.plain:
            if runs and _fixed(field) and _fixed(runs[-1][0][1]):
                runs[-1].append((name, field))
            else:
                runs.append([(name, field)])
        return runs

    def finish(self, header: str) -> Any:
        text = "\n".join([header, *self.lines])
        exec(text, self.scope)  # noqa: S102 - made of our own descriptions
        return self.scope["compiled"]


def _fixed(field: Field) -> bool:
    return field.kind in _FIXED


_FIXED = {"?": 1, "b": 1, "h": 2, "i": 4, "q": 8, "16s": 16}


class _DecoderSource(_Source):
    def compile(self) -> Decoder:
        for run in self.runs():
            if _fixed(run[0][1]):
                self._fixed_run(run)
            else:
                self._variable(f"f_{run[0][0]}", *run[0])
        if self.flexible:
            self._tagged_fields()
        made = self.name("make", self.owner)
        own = [f"f_{n}" if self._read(n) else f"_d_{n}" for n in self.owner.FIELDS]
        for name, field in self.owner.FIELDS.items():
            if not self._read(name):
                self._default_of(name, field)
        self.emit(f"return {made}({', '.join(own)}), at")
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
        """Read a length or count into `n`; null is -1, and checked."""
        text = field.kind == "string"
        if self.flexible:
            self.emit("n = data[at] - 1")
            self.emit("at += 1")
            self.emit("if n >= 127:")
            self.emit("    n, at = _uvarint(data, at - 1)")
            self.emit("    n -= 1")
            if text:
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
        """Read a value that is not of fixed width into the variable `local`."""
        if field.kind == "struct":
            nested = self.name("nested", _compile(field.element, self.version, self.flexible)[0])
            self.emit(f"{local}, at = {nested}(data, at, end, left)")
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
            text = field.kind == "string"
            self.emit(
                f"{local} = {'data[at:stop].decode()' if text else 'memoryview(data)[at:stop]'}"
            )
            self.emit("at = stop")
        self.indent -= 1

    def _items(self, local: str, name: str, item: Field) -> None:
        smallest = _smallest(item, self.version, self.flexible)
        self.emit(f"if n * {smallest} > end - at:")
        self.emit(f"    raise _long({name!r})")
        self.emit("left[0] -= n")
        self.emit("if left[0] < 0:")
        self.emit("    raise _many()")
        if _fixed(item):
            # ">5i", not ">iiiii": struct keeps a row per letter, and keeps the format.
            self.emit(f"{local} = list(_unpack_from(f'>{{n}}{item.kind}', data, at))")
            self.emit(f"at += n * {smallest}")
            return
        self.emit(f"{local} = items = []")
        self.emit("for _ in range(n):")
        self.indent += 1
        self._variable("item", name, item)
        self.emit("items.append(item)")
        self.indent -= 1

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
        self.emit("if left[0] < 0:")
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
            if _fixed(field):
                self._fixed_run([(name, field)])
            else:
                self._variable(f"f_{name}", name, field)
            self.emit("if at != after:")
            self.emit(f"    raise Malformed('the tagged field {name} has another length')")
            self.indent -= 1
        self.emit("at = after")
        self.indent -= 1


def _smallest(item: Field, version: int, flexible: bool) -> int:
    """The fewest bytes one array item can take; at least 1."""
    if _fixed(item):
        return _FIXED[item.kind]
    if item.kind != "struct":
        return 1 if flexible else (2 if item.kind == "string" else 4)
    fields = cast("type[Struct]", item.element).FIELDS.values()
    plain = [f for f in fields if f.tag is None and version in f.versions]
    return max(1, sum(_smallest(f, version, flexible) for f in plain) + flexible)


class _EncoderSource(_Source):
    def compile(self) -> Encoder:
        for run in self.runs():
            if _fixed(run[0][1]):
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
        if field.kind == "struct":
            nested = self.name("nested", _compile(field.element, self.version, self.flexible)[1])
            self.emit(f"tail = {nested}({value}, tail, buffers)")
            return
        self.emit(f"v = {value}")
        self.emit("if v is None:")
        self.indent += 1
        if self.version in field.nullable:
            self._length("-1", wide=field.kind != "string")
        else:
            self.emit(f"raise ValueError('{self.owner.__name__}.{name} may not be null')")
        self.indent -= 1
        self.emit("else:")
        self.indent += 1
        if field.kind == "array":
            self._items(field.element)
        elif field.kind == "string":
            self.emit("v = v.encode()")
            self._length("len(v)", wide=False)
            self.emit("tail += v")
        else:
            self._length("_size_of(v)", wide=True)
            self.emit("buffers.append(tail)")
            self.emit("tail = bytearray()")
            self.emit("buffers.extend(v) if type(v) is list else buffers.append(v)")
        self.indent -= 1

    def _items(self, item: Field) -> None:
        self._length("len(v)", wide=True)
        if _fixed(item):
            self.emit(f"tail += _pack(f'>{{len(v)}}{item.kind}', *v)")
            return
        self.emit("for item in v:")
        self.indent += 1
        self._variable("item", "item", item)
        self.indent -= 1

    def _tagged_fields(self) -> None:
        if not self.tagged:
            self.emit("tail.append(0)")
            return
        self.emit("tags = []")
        for name, field in sorted(self.tagged, key=lambda entry: entry[1].tag or 0):
            default = self.name("default", field.fresh_default())
            self.emit(f"if o.{name} != {default}:")
            self.indent += 1
            self.emit("outer, tail = tail, bytearray()")
            if _fixed(field):
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
