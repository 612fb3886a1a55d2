"""The order of an op on the wire.

An op travels as a msgpack array of its fields in declaration order. **Fields are only ever
appended**, always with a default: a reader ignores trailing values it does not know and takes
the default for those that are missing. Nested ops are nested arrays.
"""

from __future__ import annotations

from collections.abc import Container, Generator
from typing import Any, TypeVar, cast

from quafka_mesh_ops.ops.base import AnyStruct
from quafka_mesh_ops.ops.compiled import COMPILED
from quafka_mesh_ops.ops.forms import LONG, Form, form_of, is_struct

P = TypeVar("P", bound=AnyStruct)

_STEP = 32  # a power of two
_FEW = 8
"""Items of a list that are read at once, if they have no lists themselves."""


def to_wire(struct: AnyStruct) -> list[Any]:
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


def is_long(struct: AnyStruct) -> bool:
    """Whether a struct has lists so long that it must be written in steps."""
    return COMPILED[type(struct)].is_long(struct)


def weight(struct: AnyStruct) -> int:
    """Estimate the bytes of memory that the lists of an op take, besides their contents."""
    return COMPILED[type(struct)].weight(struct)


def long_parts(struct: AnyStruct) -> dict[int, list[Any] | AnyStruct]:
    """Return the fields that make an op so long that it must be written in steps, by position."""
    form = form_of(type(struct))
    found: dict[int, list[Any] | AnyStruct] = {}
    for place in form.listed:
        items = getattr(struct, form.names[place])
        if items and (len(items) >= LONG or any(map(is_long, items))):
            found[place] = items
    for place in form.nested:
        part = getattr(struct, form.names[place])
        if part is not None and is_long(part):
            found[place] = part
    return found


def fields_to_wire(struct: AnyStruct, without: Container[int]) -> list[Any]:
    """Return the fields as `to_wire`, except for those at the positions `without`."""
    names = form_of(type(struct)).names
    return [
        None if place in without else _value_to_wire(getattr(struct, name))
        for place, name in enumerate(names)
    ]


def _value_to_wire(value: Any) -> Any:
    if is_struct(type(value)):
        return to_wire(value)
    if isinstance(value, list):
        return [_value_to_wire(item) for item in cast("list[Any]", value)]
    return value


def from_wire_in_steps(struct_type: type[P], values: object) -> Generator[None, None, P]:
    """Decode as `from_wire`, in steps: yields after every few items of a list."""
    form = form_of(struct_type)
    fields_read: list[Any] = []
    for place, (read, value) in enumerate(zip(form.readers, form.array(values), strict=False)):
        listed, nested = form.listed.get(place), form.nested.get(place)
        if listed is not None and isinstance(value, list):
            fields_read.append((yield from _items_in_steps(listed, cast("list[Any]", value))))
        elif nested is not None and isinstance(value, list):
            fields_read.append((yield from from_wire_in_steps(nested, cast("list[Any]", value))))
        else:
            fields_read.append(read(value))
    return cast(P, form.make(fields_read))


def _items_in_steps(kind: type[P], values: list[Any]) -> Generator[None, None, list[P]]:
    structs: list[P] = []
    form = form_of(kind)
    for number, value in enumerate(values):
        structs.append(from_wire(kind, value) if _is_short(form, value)
                       else (yield from from_wire_in_steps(kind, value)))  # fmt: skip
        if number & (_STEP - 1) == _STEP - 1:
            yield
    return structs


def _is_short(form: Form, values: Any) -> bool:
    """Whether a struct's lists have few items, and those have no lists."""
    if not isinstance(values, list):
        return True
    items = cast("list[Any]", values)
    for place, kind in form.listed.items():
        listed: Any = items[place] if place < len(items) else None
        if type(listed) is list and (
            len(cast("list[Any]", listed)) > _FEW or form_of(kind).may_be_long
        ):
            return False
    return all(
        place >= len(items) or _is_short(form_of(kind), items[place])
        for place, kind in form.nested.items()
    )
