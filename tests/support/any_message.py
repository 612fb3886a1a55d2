"""Kafka messages of any kind: with other names in them, and as values that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from quafka_proto.message import Struct


def renamed(message: Any, names: Mapping[str, str]) -> Any:
    """A copy of a message in which these texts are replaced, wherever a field is one of them."""
    if isinstance(message, Struct):
        fields = {name: renamed(getattr(message, name), names) for name in message.FIELDS}
        return type(message)(**fields)
    if isinstance(message, list):
        return [renamed(item, names) for item in message]
    if isinstance(message, str):
        return names.get(message, message)
    return message


def as_value(message: Any, shown: Callable[[str, Any], Any]) -> Any:
    """A message as nested dicts and sorted lists; `shown` maps a field's name and plain value."""
    if isinstance(message, Struct):
        return {
            name: as_value(value, shown) if isinstance(value, Struct | list) else shown(name, value)
            for name in message.FIELDS
            for value in (getattr(message, name),)
        }
    if isinstance(message, list):
        return sorted((as_value(item, shown) for item in message), key=repr)
    return message
