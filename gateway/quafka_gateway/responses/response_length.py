"""Whether a response is so long that its encoding must yield to other work."""

from __future__ import annotations

from quafka_proto.message import Encoded, Message, Struct, lists_of_structs

_MANY = 500
"""Structs of a response; encoding them takes a millisecond."""
_FEW = 50
"""A response about fewer named items than this is short."""


def is_long(response: Message) -> bool:
    """Whether a response has at least `_MANY` structs. Stops counting there."""
    return _left(response, _MANY) <= 0


def names_few(request: Message) -> bool:
    """Whether a request names few items. A null array stands for all items, so it is not few."""
    return _left_to_name(request, _FEW) > 0


def _left_to_name(struct: Struct, left: int) -> int:
    """Return `left` minus the array items of a request, at any depth; 0 for a null array."""
    for name, field in type(struct).FIELDS.items():
        if field.kind != "array":
            continue
        items = getattr(struct, name)
        if items is None:
            return 0
        left -= len(items)
        if left > 0 and field.element.kind == "struct":
            for item in items:
                left = _left_to_name(item, left)
        if left <= 0:
            return left
    return left


def _left(struct: Struct, left: int) -> int:
    """Return `left` minus the structs that this struct lists, at any depth."""
    for name, kind in lists_of_structs(type(struct)):
        found: list[Struct] | Encoded | None = getattr(struct, name)
        if not found or isinstance(found, Encoded):
            continue
        items = found
        left -= len(items)
        if left > 0 and lists_of_structs(kind):
            for item in items:
                left = _left(item, left)
                if left <= 0:
                    break
        if left <= 0:
            break
    return left
