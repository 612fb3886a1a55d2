"""The fields of op types, and how each field's value is checked and converted.

A field of an op may be a Kafka message, or a part of one (`quafka_proto.schema`). Such a struct
travels as the array of its fields in the newest version, those of earlier versions first: as with
ops, fields that Kafka adds are at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeGuard, cast, get_args, get_origin, get_type_hints

from quafka_loop.garbage import without_gc
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.base import AnyStruct, Buffer, WireStruct
from quafka_proto.message import Struct

BUFFERS = (bytes, memoryview, bytearray)
"""The types of a Buffer. Which of them it is depends on how the payload was read (by_reference)."""
LONG = 256
"""Items of a list from which on an op is written and read in steps."""
_MANY = 1_000
"""Items of a list from which on it is read without collecting garbage."""

_Read = Callable[[Any], Any]
_SCALARS: dict[object, tuple[type, ...]] = {
    int: (int,),
    str: (str,),
    bool: (bool,),
    Buffer: BUFFERS,
}


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of one type, in the order on the wire.

    Attributes:
        required: how many of them a peer must have sent.
        places: their positions in the order of declaration.
        readers: check one msgpack value each, and convert it to the declared type.
        listed: the item types of the fields that are lists of structs, by position.
        nested: the types of the fields that are structs with such fields, by position.
    """

    struct_type: type[AnyStruct]
    names: tuple[str, ...]
    hints: tuple[Any, ...]
    required: int
    places: tuple[int, ...]
    readers: tuple[_Read, ...]
    listed: dict[int, type[AnyStruct]]
    nested: dict[int, type[AnyStruct]]

    @property
    def may_be_long(self) -> bool:
        """Whether a struct of the type may have lists of structs."""
        return bool(self.listed or self.nested)

    def read(self, values: object) -> Any:
        """Make a struct of values. Values that follow the known ones are ignored.

        Raises:
            ProtocolError: not an array, too few values, or one of the wrong type.
        """
        items = self.array(values)
        return self.make([read(v) for read, v in zip(self.readers, items, strict=False)])

    def array(self, values: object) -> list[Any]:
        """Return the values of an array. Raises ProtocolError."""
        if not isinstance(values, list):
            raise ProtocolError(f"{self.struct_type.__name__} is not an array")
        return cast("list[Any]", values)

    def make(self, values: list[Any]) -> Any:
        """Make a struct of converted values. Raises ProtocolError if there are too few."""
        if len(values) < self.required:
            raise ProtocolError(f"{self.struct_type.__name__} has only {len(values)} fields")
        return self.struct_type(**dict(zip(self.names, values, strict=False)))


_forms: dict[type[Any], Form] = {}


def form_of(struct_type: type[Any]) -> Form:
    """Return the form of a type."""
    form = _forms.get(struct_type)
    if form is None:
        declared = get_type_hints(struct_type)
        names, required = _names(struct_type)
        hints = tuple(declared[name] for name in names)
        places = tuple(names.index(name) for name in declared if name in names)
        readers = tuple(_reader(hint, name) for hint, name in zip(hints, names, strict=True))
        listed = {place: kind for place, hint in enumerate(hints) if (kind := _listed(hint))}
        nested = {place: kind for place, hint in enumerate(hints) if (kind := _nested(hint))}
        form = _forms[struct_type] = Form(
            struct_type, names, hints, required, places, readers, listed, nested
        )
    return form


def _names(struct_type: type[AnyStruct]) -> tuple[tuple[str, ...], int]:
    """The names of the fields in the order on the wire, and how many of them are required."""
    if issubclass(struct_type, Struct):
        since = {name: field.versions.low for name, field in struct_type.FIELDS.items()}
        first = list(since.values()).count(min(since.values(), default=0))
        return tuple(sorted(since, key=since.__getitem__)), first
    declared = fields(cast(Any, struct_type))
    return tuple(each.name for each in declared), [each.default for each in declared].count(MISSING)


def is_struct(hint: Any) -> TypeGuard[type[AnyStruct]]:
    """Whether values of the type are arrays of their fields on the wire."""
    return isinstance(hint, type) and issubclass(hint, (WireStruct, Struct))


def _listed(hint: Any) -> type[AnyStruct] | None:
    """Return the item type of a list of structs, which may be optional; None for other types."""
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        return item if is_struct(item) else None
    return next((kind for each in get_args(hint) if (kind := _listed(each)) is not None), None)


def _nested(hint: Any) -> type[AnyStruct] | None:
    """Return the type of a struct with lists, which may be optional; None for other types."""
    parts = () if get_origin(hint) is list else (hint, *get_args(hint))
    kinds = filter(is_struct, parts)
    return next((kind for kind in kinds if form_of(kind).may_be_long), None)


def _reader(hint: Any, name: str) -> _Read:
    scalar = _SCALARS.get(hint)
    if scalar is not None:
        return _scalar_reader(scalar, name)
    if hint is bytes:
        return _bytes_reader(name)
    if hint is float:
        return _float_reader(name)
    if get_origin(hint) is list:
        (item_hint,) = get_args(hint)
        if item_hint in (int, str, bool):
            return _plain_list_reader(item_hint, name)
        return _list_reader(_reader(item_hint, name), name)
    if is_struct(hint):
        return lambda value: form_of(hint).read(value)
    present = [arg for arg in get_args(hint) if arg is not type(None)]
    if len(present) == 1:
        read = _reader(present[0], name)
        return lambda value: None if value is None else read(value)
    raise AssertionError(f"no wire form for {hint} ({name})")


def _scalar_reader(allowed: tuple[type, ...], name: str) -> _Read:
    def read(value: Any) -> Any:
        if type(value) not in allowed:
            raise ProtocolError(f"{name} has type {type(value).__name__}")
        return value

    return read


def _bytes_reader(name: str) -> _Read:
    def read(value: Any) -> bytes:
        if type(value) is bytes:
            return value
        if type(value) not in BUFFERS:
            raise ProtocolError(f"{name} has type {type(value).__name__}")
        return bytes(value)

    return read


def _float_reader(name: str) -> _Read:
    def read(value: Any) -> float:
        if type(value) is not float and type(value) is not int:  # a whole number may come as one
            raise ProtocolError(f"{name} has type {type(value).__name__}")
        return float(value)

    return read


def _plain_list_reader(kind: type, name: str) -> _Read:
    """Reads 100,000 numbers in a millisecond."""

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ProtocolError(f"{name} is not an array")
        items = cast("list[Any]", value)
        for found in set(map(type, items)):
            if found is not kind:
                raise ProtocolError(f"{name} has type {found.__name__}")
        return items

    return read


def _list_reader(read_item: _Read, name: str) -> _Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ProtocolError(f"{name} is not an array")
        return read_each(read_item, cast("list[Any]", value))

    return read


def read_each(read: _Read, items: list[Any]) -> list[Any]:
    """Convert every item of a list."""
    if len(items) < _MANY:
        return [read(item) for item in items]
    with without_gc():
        return [read(item) for item in items]
