"""Makes ops of any type and size from the types alone, so new ops are covered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_origin

import msgpack  # type: ignore[import-untyped]

from quafka_mesh_ops.ops.base import AnyStruct, Buffer, WireStruct
from quafka_mesh_ops.ops.codec import to_wire
from quafka_mesh_ops.ops.forms import form_of, is_struct
from quafka_proto.message import Struct


class Filled(NamedTuple):
    """A struct with one large field. `many`: large by its number of items."""

    field: str
    part: Any
    many: bool


def least(hint: Any) -> Any:
    """Return the smallest value of a type, with its optional fields set."""
    if is_struct(hint):
        return _least_part(hint)
    if get_origin(hint) is list:
        return []
    simple = {int: 0, float: 0.0, bool: False, str: "", bytes: b"", Buffer: b""}
    return simple[hint] if hint in simple else least(_present(hint))


def _least_part(part_type: type[AnyStruct]) -> AnyStruct:
    form = form_of(part_type)
    required = zip(form.names[: form.required], form.hints, strict=False)
    return part_type(**{name: least(hint) for name, hint in required})


def _present(hint: Any) -> Any:
    (present,) = [arg for arg in get_args(hint) if arg is not type(None)]
    return present


def filled(
    hint: Any, size: int, *, many: bool = True, items: int | None = None
) -> Iterator[Filled]:
    """Yield one value for each field of a type that can grow, with about `size` bytes in it.

    `many`: include lists that are long, by their size or by the number of `items`.
    """
    if hint in (bytes, Buffer):
        yield Filled("", bytes(size), many=False)
    elif hint is str:
        yield Filled("", "x" * size, many=False)
    elif get_origin(hint) is list:
        (item,) = get_args(hint)
        for name, value, is_many in filled(item, size, many=many, items=items):
            yield Filled(f"[]{name}", [value], is_many)
        if many:
            one = least(item)
            count = max(1, size // _packed_size(one)) if items is None else items
            yield Filled("[*]", [one] * count, many=True)
    elif is_struct(hint):
        form = form_of(hint)
        for field, its in zip(form.names, form.hints, strict=True):
            for name, value, is_many in filled(its, size, many=many, items=items):
                part = _least_part(hint)
                setattr(part, field, value)
                yield Filled(f".{field}{name}", part, is_many)
    elif hint not in (int, float, bool):
        yield from filled(_present(hint), size, many=many, items=items)


def _wire(value: Any) -> Any:
    if isinstance(value, (WireStruct, Struct)):
        return to_wire(value)
    return [_wire(item) for item in value] if isinstance(value, list) else value


def _packed_size(value: Any) -> int:
    return len(msgpack.packb(_wire(value)))


def check_types(hint: Any, value: Any) -> None:
    """Assert that fields have exactly their types: a field of type `bytes` is no view."""
    if is_struct(hint):
        form = form_of(hint)
        for name, its in zip(form.names, form.hints, strict=True):
            check_types(its, getattr(value, name))
    elif get_origin(hint) is list:
        for item in value[:3]:
            check_types(get_args(hint)[0], item)
    elif hint == Buffer:
        assert isinstance(value, bytes | bytearray | memoryview)
    elif isinstance(hint, type):
        assert type(value) is hint, (hint, type(value))
    elif value is not None:
        check_types(_present(hint), value)
