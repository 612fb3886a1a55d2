"""Makes ops of any type and size from the types alone, so new ops are covered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]

from quafka_mesh_ops.ops.base import Buffer, WireStruct
from quafka_mesh_ops.ops.codec import to_wire


class Filled(NamedTuple):
    """A struct with one large field. `many`: large by its number of items."""

    field: str
    part: Any
    many: bool


def least(hint: Any) -> Any:
    """Return the smallest value of a type, with its optional fields set."""
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        return _least_part(hint)
    if get_origin(hint) is list:
        return []
    simple = {int: 0, float: 0.0, bool: False, str: "", bytes: b"", Buffer: b""}
    return simple[hint] if hint in simple else least(_present(hint))


def _least_part(part_type: type[WireStruct]) -> WireStruct:
    hints = get_type_hints(part_type)
    return part_type(
        **{
            each.name: least(hints[each.name])
            for each in fields(part_type)
            if each.default is MISSING
        }
    )


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
    elif isinstance(hint, type) and issubclass(hint, WireStruct):
        base: Any = _least_part(hint)
        hints = get_type_hints(hint)
        for each in fields(hint):
            for name, value, is_many in filled(hints[each.name], size, many=many, items=items):
                yield Filled(f".{each.name}{name}", replace(base, **{each.name: value}), is_many)
    elif hint not in (int, float, bool):
        yield from filled(_present(hint), size, many=many, items=items)


def _wire(value: Any) -> Any:
    if isinstance(value, WireStruct):
        return to_wire(value)
    return [_wire(item) for item in value] if isinstance(value, list) else value


def _packed_size(value: Any) -> int:
    return len(msgpack.packb(_wire(value)))


def check_types(hint: Any, value: Any) -> None:
    """Assert that fields have exactly their types: a field of type `bytes` is no view."""
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        for name, its in get_type_hints(hint).items():
            if name in {each.name for each in fields(hint)}:
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
