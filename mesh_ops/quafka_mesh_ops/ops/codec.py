"""The order of an op on the wire.

An op travels as a msgpack array of its fields in declaration order. **Fields are only ever
appended**, always with a default: a reader ignores trailing values it does not know and takes
the default for those that are missing. Nested ops are nested arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.base import Buffer, WireStruct
from quafka_telemetry.garbage import without_gc

P = TypeVar("P", bound=WireStruct)
_Read = Callable[[Any], Any]
_SCALARS: dict[object, tuple[type, ...]] = {
    int: (int,),
    str: (str,),
    bool: (bool,),
    Buffer: (bytes, memoryview, bytearray),
}


def to_wire(struct: WireStruct, without: Container[int] = ()) -> list[Any]:
    """Return the op as a fixed-order array of msgpack values. Record bytes are passed by reference.

    The fields at the positions `without` are not converted.
    """
    form = _form(type(struct))
    values = list(form.get(struct))
    for place in form.nested:
        if place not in without:
            values[place] = _write(values[place])
    return values


def long_lists(struct: WireStruct) -> dict[int, list[Any]]:
    """Return the fields with lists so long that the op must be written in steps, by position."""
    form = _form(type(struct))
    if not form.listed:
        return {}
    values = form.get(struct)
    return {place: values[place] for place in form.listed if _lists_many(values[place])}


def _lists_many(items: list[WireStruct] | None) -> bool:
    """Whether a list, or a list in one of its items, is long."""
    if not items:
        return False
    if len(items) >= _LONG:
        return True
    return bool(_form(type(items[0])).listed) and any(map(long_lists, items))


def from_wire(struct_type: type[P], values: object) -> P:
    """Decode an op from its array.

    Raises:
        ProtocolError: not an array, too few values, or one of the wrong type.
    """
    form = _form(struct_type)
    if not isinstance(values, list):
        raise ProtocolError(f"{struct_type.__name__} is not an array")
    items = cast("list[Any]", values)
    if list(map(type, items)) == form.plain and not any(items[place] for place in form.lists):
        return struct_type(*items)
    try:
        return struct_type(*[read(value) for read, value in zip(form.readers, items, strict=False)])
    except TypeError as e:
        raise ProtocolError(f"{struct_type.__name__}: {e}") from e


def from_wire_in_steps(struct_type: type[P], values: object) -> Generator[None, None, P]:
    """Decode as `from_wire`, in steps: yields after every few items of a list."""
    form = _form(struct_type)
    if not isinstance(values, list):
        raise ProtocolError(f"{struct_type.__name__} is not an array")
    items = cast("list[Any]", values)
    fields_read: list[Any] = []
    for place, (read, value) in enumerate(zip(form.readers, items, strict=False)):
        kind = form.listed.get(place)
        if kind is None or not isinstance(value, list):
            fields_read.append(read(value))
        else:
            fields_read.append((yield from _items_in_steps(kind, cast("list[Any]", value))))
    try:
        return struct_type(*fields_read)
    except TypeError as e:
        raise ProtocolError(f"{struct_type.__name__}: {e}") from e


def _items_in_steps(kind: type[P], values: list[Any]) -> Generator[None, None, list[P]]:
    structs: list[P] = []
    nests = bool(_form(kind).listed)
    for number, value in enumerate(values):
        structs.append((yield from from_wire_in_steps(kind, value)) if nests
                     else from_wire(kind, value))  # fmt: skip
        if number & (_STEP - 1) == _STEP - 1:
            yield
    return structs


def weight(struct: WireStruct) -> int:
    """Estimate the bytes of memory that the lists of an op take, besides their contents."""
    values = _form(type(struct)).get(struct)
    return _BYTES_PER_ITEM * sum(len(cast("list[Any]", v)) for v in values if isinstance(v, list))


_MANY = 1_000
_LONG = 256
_STEP = 32  # a power of two
_BYTES_PER_ITEM = 256  # an object with a few numbers, and its reference in the list


def _write(value: Any) -> Any:
    if isinstance(value, WireStruct):
        return to_wire(value)
    if isinstance(value, list):
        return [_write(item) for item in cast("list[Any]", value)]
    return value


@dataclass(frozen=True, slots=True)
class _Form:
    """How a type is read and written.

    A fetch of a thousand partitions has a thousand structs each way: those with empty lists and
    no optional fields are read and written without a call per field.
    """

    get: Callable[[Any], tuple[Any, ...]]
    readers: tuple[_Read, ...]
    nested: tuple[int, ...]
    """The positions of the fields that are or contain structs."""
    listed: dict[int, type[WireStruct]]
    """The item types of the fields that are lists of structs, by position."""
    lists: tuple[int, ...]
    plain: list[type]
    """The types of the fields of a plain struct: optional fields are None."""


_forms: dict[type[WireStruct], _Form] = {}


def _form(struct_type: type[WireStruct]) -> _Form:
    form = _forms.get(struct_type)
    if form is None:
        hints = get_type_hints(struct_type)
        names = [field.name for field in fields(cast(Any, struct_type))]
        plain = [_plain_type(hints[name]) for name in names]
        form = _forms[struct_type] = _Form(
            _getter(names),
            tuple(_reader(hints[name], name) for name in names),
            tuple(place for place, name in enumerate(names) if _has_structs(hints[name])),
            {
                place: kind
                for place, name in enumerate(names)
                if (kind := _listed(hints[name])) is not None
            },
            tuple(place for place, kind in enumerate(plain) if kind is list),
            plain,
        )
    return form


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda struct: ()
    get = attrgetter(*names)
    return lambda struct: (get(struct),)


def _plain_type(hint: Any) -> type:
    """Return the type that a field's value mostly has; `WireStruct` if it must be converted."""
    if hint is Buffer:
        return bytes
    if get_origin(hint) is list:
        return list
    if type(None) in get_args(hint):
        return type(None)
    return hint if hint is bytes or hint in _SCALARS else WireStruct


def _listed(hint: Any) -> type[WireStruct] | None:
    """Return the item type of a list of structs, which may be optional; None for other types."""
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        return item if isinstance(item, type) and issubclass(item, WireStruct) else None
    return next((kind for each in get_args(hint) if (kind := _listed(each)) is not None), None)


def _has_structs(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        return True
    return any(map(_has_structs, get_args(hint)))


def _reader(hint: Any, name: str) -> _Read:
    """Return a function that checks one msgpack value and converts it to the declared type."""
    scalar = _SCALARS.get(hint)
    if scalar is not None:
        return _scalar_reader(scalar, name)
    if hint is bytes:
        return _bytes_reader(name)
    if get_origin(hint) is list:
        (item_hint,) = get_args(hint)
        if item_hint in (int, str, bool):
            return _plain_list_reader(item_hint, name)
        return _list_reader(_reader(item_hint, name), name)
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        return lambda value: from_wire(hint, value)
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
    """Accepts the same types as Buffer: they depend on how the payload was read (by_reference)."""

    def read(value: Any) -> bytes:
        if type(value) is bytes:
            return value
        if type(value) not in _SCALARS[Buffer]:
            raise ProtocolError(f"{name} has type {type(value).__name__}")
        return bytes(value)

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
        items = cast("list[Any]", value)
        if len(items) < _MANY:
            return [read_item(item) for item in items]
        with without_gc():
            return [read_item(item) for item in items]

    return read
