"""Whether an answer describes so much that to encode it would keep the event loop."""

from __future__ import annotations

from functools import cache

from quafka_proto.message import Message, Struct

_MANY = 2_000
"""Structs of an answer: some milliseconds."""


def is_long(answer: Message) -> bool:
    """Whether there are that many structs in it. Counts no further."""
    return _left(answer, _MANY) <= 0


def _left(struct: Struct, left: int) -> int:
    """What remains of `left` without those that this one lists."""
    for name in _lists(type(struct)):
        items: list[Struct] = getattr(struct, name) or []
        left -= len(items)
        if items and left > 0 and _lists(type(items[0])):
            for item in items:
                left = _left(item, left)
                if left <= 0:
                    break
        if left <= 0:
            break
    return left


@cache
def _lists(kind: type[Struct]) -> tuple[str, ...]:
    """The fields that are lists of structs."""
    return tuple(
        name
        for name, field in kind.FIELDS.items()
        if field.kind == "array" and field.element.kind == "struct"
    )
