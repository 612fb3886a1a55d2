"""Whether an answer describes so much that to encode it would keep the event loop."""

from __future__ import annotations

from quafka_proto.message import Encoded, Message, Struct, lists_of_structs

_MANY = 500
"""Structs of an answer: a millisecond."""


def is_long(answer: Message) -> bool:
    """Whether there are that many structs in it. Counts no further."""
    return _left(answer, _MANY) <= 0


_FEW = 50
"""Things that a request names: an answer about them is short."""


def names_few(request: Message) -> bool:
    """Whether a request names what it asks for, and few; null stands for everything there is."""
    return _left_to_name(request, _FEW) > 0


def _left_to_name(struct: Struct, left: int) -> int:
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
    """What remains of `left` without those that this one lists."""
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
