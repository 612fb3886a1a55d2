"""Decodes Protobuf for people to read, whatever the descriptors and the bytes are.

A registry gives a schema as the descriptor of a file (`format=serialized`), so that no compiler is
needed. Google's library bounds the depth of a message. A message takes memory for each field of
its type even where none is set, so the fields of a type and the size of a value are bounded here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from quafka_client.errors import ClientError

_MOST_BYTES = 64 << 10
_MOST_FIELDS = 200
_MOST_TYPES = 2_000
_DEPTH = 16
_WELL_KNOWN: dict[str, Any] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2,
        timestamp_pb2, wrappers_pb2,
    )
}  # fmt: skip


class ProtobufError(ClientError):
    """A schema or a value that cannot be decoded; the message is a sentence."""


@dataclass(slots=True, eq=False)
class ProtobufFile:
    """The types of a file: `classes` of messages by their indexes, made when they are needed."""

    pool: Any
    descriptor: Any
    classes: dict[tuple[int, ...], Any] = field(default_factory=dict[tuple[int, ...], Any])


def parse(text: str, references: Mapping[str, str]) -> ProtobufFile:
    """The file of a descriptor in base64; `references`: of those that it imports, by their names.

    Raises ProtobufError.
    """
    pool: Any = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for name, other in references.items():
        _add(pool, _descriptor(name, other), added)
    # no import can have this name
    own = _descriptor("/", text)
    _add(pool, own, added)
    return ProtobufFile(pool, own)


def _descriptor(name: str, text: str) -> Any:
    """Raises ProtobufError."""
    found: Any = descriptor_pb2.FileDescriptorProto()
    try:
        found.ParseFromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError) as e:
        raise ProtobufError(
            "the registry does not give the descriptor of the Protobuf schema (format=serialized)"
        ) from e
    found.name = name
    left = [*found.message_type]
    for count, each in enumerate(iter(lambda: left.pop() if left else None, None)):
        if len(each.field) > _MOST_FIELDS or count >= _MOST_TYPES:
            raise ProtobufError(
                f"a Protobuf schema has more than {_MOST_FIELDS} fields in a message, or more than "
                f"{_MOST_TYPES:,} messages"
            )
        left.extend(each.nested_type)
    return found


def _add(pool: Any, file: Any, added: set[str]) -> None:
    for name in file.dependency:
        if name not in added and name in _WELL_KNOWN:
            known: Any = descriptor_pb2.FileDescriptorProto()
            _WELL_KNOWN[name].CopyToProto(known)
            _add(pool, known, added)
        elif name not in added:
            raise ProtobufError(f"the Protobuf schema imports {name[:200]!r}, which is not known")
    try:
        pool.Add(file)
    except (TypeError, ValueError, KeyError) as e:
        raise ProtobufError(f"the Protobuf schema is not valid: {str(e)[:200]}") from e
    added.add(file.name)


def decode(data: bytes, file: ProtobufFile) -> Any:
    """A value, with the indexes of its type before it, as JSON types: bytes as hex.

    Fields that are not set are left out. Raises ProtobufError.
    """
    if len(data) > _MOST_BYTES:
        raise ProtobufError(f"only Protobuf values of up to {_MOST_BYTES:,} bytes are decoded")
    indexes, at = _indexes(data)
    kind = file.classes.get(indexes)
    if kind is None:
        kind = file.classes[indexes] = _class(file, indexes)
    message = kind()
    try:
        message.ParseFromString(data[at:])
    except DecodeError as e:
        raise ProtobufError("the value does not fit its Protobuf schema") from e
    return _shown(message, {})


def _indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of the file it is, and where it begins; a single 0: the first one."""
    count, at = _number(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _DEPTH:
        raise ProtobufError(f"the value names a Protobuf type that is nested {count} deep")
    found: list[int] = []
    for _ in range(count):
        index, at = _number(data, at)
        found.append(index)
    return tuple(found), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where the next byte is."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise ProtobufError("the value does not name its Protobuf type")


def _class(file: ProtobufFile, indexes: tuple[int, ...]) -> Any:
    types, names = file.descriptor.message_type, [file.descriptor.package]
    for index in indexes:
        if not 0 <= index < len(types):
            raise ProtobufError("the value names a message that its Protobuf schema does not have")
        names.append(types[index].name)
        types = types[index].nested_type
    found = file.pool.FindMessageTypeByName(".".join(filter(None, names)))
    return message_factory.GetMessageClass(found)


def _shown(message: Any, names: dict[Any, str]) -> dict[str, Any]:
    """`names`: of fields, so that messages share them: each reading makes another string."""
    found: dict[str, Any] = {}
    for each, value in message.ListFields():
        name = names.get(each)
        if name is None:
            name = names[each] = str(each.name)
        kind = each.message_type
        if kind is not None and kind.GetOptions().map_entry:
            inner = kind.fields_by_name["value"]
            found[name] = {str(key): _one(value[key], inner, names) for key in value}
        elif each.is_repeated:
            found[name] = [_one(item, each, names) for item in value]
        else:
            found[name] = _one(value, each, names)
    return found


def _one(value: Any, kind: Any, names: dict[Any, str]) -> Any:
    if kind.message_type is not None:
        return _shown(value, names)
    if kind.enum_type is not None:
        known = kind.enum_type.values_by_number.get(value)
        return value if known is None else str(known.name)
    return f"0x{value.hex()}" if isinstance(value, bytes) else value
