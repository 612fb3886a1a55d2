"""The order of an op on the wire.

An op travels as a msgpack array of its fields in declaration order. **Fields are only ever
appended**, always with a default: a reader ignores trailing values it does not know and takes
the default for those that are missing. Nested ops are nested arrays.
"""

from __future__ import annotations

from collections.abc import Container, Generator
from typing import Any, TypeVar, cast

from quafka_mesh_ops.ops.base import WireStruct
from quafka_mesh_ops.ops.compiled import COMPILED
from quafka_mesh_ops.ops.forms import LONG, form_of

P = TypeVar("P", bound=WireStruct)

_STEP = 32  # a power of two


def to_wire(struct: WireStruct) -> list[Any]:
    """Return the op as a fixed-order array of msgpack values.

    Record bytes and lists of plain values are passed by reference.
    """
    return COMPILED[type(struct)].write(struct)


def from_wire(struct_type: type[P], values: object) -> P:
    """Decode an op from its array.

    Raises:
        ProtocolError: not an array, too few values, or one of the wrong type.
    """
    struct: P = COMPILED[struct_type].read(values)
    return struct


def is_long(struct: WireStruct) -> bool:
    """Whether a struct has lists so long that it must be written in steps."""
    return COMPILED[type(struct)].is_long(struct)


def weight(struct: WireStruct) -> int:
    """Estimate the bytes of memory that the lists of an op take, besides their contents."""
    return COMPILED[type(struct)].weight(struct)


def long_lists(struct: WireStruct) -> dict[int, list[Any]]:
    """Return the fields with lists so long that the op must be written in steps, by position."""
    form = form_of(type(struct))
    found: dict[int, list[Any]] = {}
    for place in form.listed:
        items = getattr(struct, form.names[place])
        if items and (len(items) >= LONG or any(map(is_long, items))):
            found[place] = items
    return found


def fields_to_wire(struct: WireStruct, without: Container[int]) -> list[Any]:
    """Return the fields as `to_wire`, except for those at the positions `without`."""
    names = form_of(type(struct)).names
    return [
        None if place in without else _value_to_wire(getattr(struct, name))
        for place, name in enumerate(names)
    ]


def _value_to_wire(value: Any) -> Any:
    if isinstance(value, WireStruct):
        return to_wire(value)
    if isinstance(value, list):
        return [_value_to_wire(item) for item in cast("list[Any]", value)]
    return value


def from_wire_in_steps(struct_type: type[P], values: object) -> Generator[None, None, P]:
    """Decode as `from_wire`, in steps: yields after every few items of a list."""
    form = form_of(struct_type)
    fields_read: list[Any] = []
    for place, (read, value) in enumerate(zip(form.readers, form.array(values), strict=False)):
        kind = form.listed.get(place)
        if kind is None or not isinstance(value, list):
            fields_read.append(read(value))
        else:
            fields_read.append((yield from _items_in_steps(kind, cast("list[Any]", value))))
    return cast(P, form.make(fields_read))


def _items_in_steps(kind: type[P], values: list[Any]) -> Generator[None, None, list[P]]:
    structs: list[P] = []
    nests = bool(form_of(kind).listed)
    for number, value in enumerate(values):
        structs.append((yield from from_wire_in_steps(kind, value)) if nests
                     else from_wire(kind, value))  # fmt: skip
        if number & (_STEP - 1) == _STEP - 1:
            yield
    return structs
