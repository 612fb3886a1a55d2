"""The first Kafka error in a response, wherever its schema has error codes."""

from __future__ import annotations

from typing import Any, cast

from quafka_proto.message import Message, Struct

_DEEPEST = 3
_Path = tuple[str, ...]
_paths: dict[type[Message], tuple[_Path, ...]] = {}


def first_error(response: Message) -> int:
    """The code, 0 where everything went well."""
    paths = _paths.get(type(response))
    if paths is None:
        paths = _paths[type(response)] = tuple(_find(type(response), ()))
    for path in paths:
        error = _first(response, path)
        if error:
            return error
    return 0


def _first(value: Any, path: _Path) -> int:
    if len(path) == 1:
        return cast(int, getattr(value, path[0]))
    for item in getattr(value, path[0]) or ():
        error = _first(item, path[1:])
        if error:
            return error
    return 0


def _find(struct: type[Struct], prefix: _Path) -> list[_Path]:
    """The ways to error codes: names of arrays, then of the code."""
    found: list[_Path] = []
    for name, field in struct.FIELDS.items():
        if name == "error_code":
            found.append((*prefix, name))
        elif field.kind == "array" and field.element.kind == "struct" and len(prefix) < _DEEPEST:
            found += _find(field.element.element, (*prefix, name))
    return sorted(found, key=len)
