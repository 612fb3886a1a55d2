"""JSON as a tree, whose branches a reader folds and searches. Pure, for any bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from quafka_console.data.messages.records import KeptBytes
from quafka_console.data.messages.texts import json_of

MOST_NODES = 2_000
_DEPTH = 64
_LONGEST = 500

Node = dict[str, Any]
"""`id`, a number; `label`; `children`, if it has any."""


class _TooLargeError(Exception):
    """A tree of so many nodes, or so deep, would not help."""


def folded(kept: KeptBytes | None) -> list[Node] | None:
    """The members of an object or a list; None: it is neither, or too large, or was cut."""
    if kept is None or not kept.whole:
        return None
    value = json_of(kept.data)
    if not isinstance(value, dict | list):
        return None
    try:
        return _Tree().members(value, _DEPTH)
    except _TooLargeError:
        return None


class _Tree:
    def __init__(self) -> None:
        self._count = 0

    def members(self, value: Any, depth: int) -> list[Node]:
        """The nodes of a value's members."""
        named: Iterable[tuple[Any, Any]]
        if isinstance(value, dict):
            named = cast("dict[str, Any]", value).items()
        else:
            named = enumerate(cast("list[Any]", value))
        return [self._node(str(name), member, depth) for name, member in named]

    def _node(self, name: str, value: Any, depth: int) -> Node:
        self._count += 1
        if self._count > MOST_NODES or not depth:
            raise _TooLargeError
        node: Node = {"id": self._count}
        if isinstance(value, dict | list) and value:
            count = len(cast("list[Any]", value))
            node["label"] = f"{name[:_LONGEST]} ({count:,})"
            node["children"] = self.members(value, depth - 1)
        else:
            text = json.dumps(value, ensure_ascii=False)
            node["label"] = f"{name[:_LONGEST]}: {text[:_LONGEST]}"
        return node
