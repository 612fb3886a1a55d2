"""Whether an answer describes so much that to encode it would keep the event loop."""

from __future__ import annotations

from quafka_proto.message import Message, Struct, lists_of_structs

_MANY = 2_000
"""Structs of an answer: some milliseconds."""


def is_long(answer: Message) -> bool:
    """Whether there are that many structs in it. Counts no further."""
    return _left(answer, _MANY) <= 0


def _left(struct: Struct, left: int) -> int:
    """What remains of `left` without those that this one lists."""
    for name, kind in lists_of_structs(type(struct)):
        items: list[Struct] = getattr(struct, name) or []
        left -= len(items)
        if left > 0 and lists_of_structs(kind):
            for item in items:
                left = _left(item, left)
                if left <= 0:
                    break
        if left <= 0:
            break
    return left
