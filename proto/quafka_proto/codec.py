"""Decodes and encodes messages with functions compiled from their descriptions.

A function is compiled on first use, for each struct, version and direction. It is plain Python for
one version: it reads runs of fixed-width fields with one struct call, and length prefixes inline;
it has no code for fields of other versions. For any bytes, decoding returns a message or raises
Malformed.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable
from copy import copy
from operator import is_
from typing import TypeVar, cast

from quafka_proto.decoding import GARBLED, Decoder, decoder
from quafka_proto.encoding import Encoder, encoder
from quafka_proto.errors import Malformed
from quafka_proto.message import Buffer, Encoded, Message, Struct, lists_of_structs
from quafka_proto.stepped_decoding import stepped_decoder

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def decode(message_type: type[M], version: int, data: bytes, offset: int = 0) -> M:
    """Decode a whole message: all of `data` from `offset` on.

    Raises:
        Malformed: too short, too long, or a value that the version does not allow.
        ValueError: the message type does not describe this version.
    """
    message, at = decode_front(message_type, version, data, offset)
    if at != len(data):
        more = len(data) - at
        raise Malformed(f"{message_type.__name__} v{version} is followed by {more} bytes")
    return message


def decode_front(
    message_type: type[M], version: int, data: bytes, offset: int = 0
) -> tuple[M, int]:
    """Decode the message that begins at `offset`. Returns it and the position after it.

    Raises:
        Malformed: too short, or a value that the version does not allow.
        ValueError: the message type does not describe this version.
    """
    function = _decoders.get((message_type, version)) or _decoder(message_type, version)
    try:
        return function(data, offset, len(data), [message_type.item_limit])
    except GARBLED as e:
        raise Malformed(f"{message_type.__name__} v{version} is cut short or garbled: {e}") from e


def decode_in_steps(
    message_type: type[M], version: int, data: bytes, offset: int = 0
) -> Generator[None, None, tuple[M, int]]:
    """As `decode_front`, in steps: yields after every few items of an array.

    Raises:
        Malformed, ValueError: as `decode_front`.
    """
    read = stepped_decoder(message_type, version, _flexible(message_type, version))
    try:
        message, at = yield from read(data, offset, len(data), [message_type.item_limit])
    except GARBLED as e:
        raise Malformed(f"{message_type.__name__} v{version} is cut short or garbled: {e}") from e
    return cast(M, message), at


def encode(message: Message, version: int, head: bytearray | None = None) -> list[Buffer]:
    """Encode a message. Record bytes are passed by reference, never copied or joined.

    `head`: the bytes before the message, which become the beginning of the first buffer.

    Raises:
        ValueError: a value that does not fit its field, null where the version has no null, or a
            version that the message type does not describe.
    """
    key = (type(message), version)
    function = _encoders.get(key) or _encoder(*key)
    buffers: list[Buffer] = []
    try:
        buffers.append(function(message, bytearray() if head is None else head, buffers))
    except struct.error as e:
        raise ValueError(f"{type(message).__name__} v{version} cannot be encoded: {e}") from e
    return buffers


def encode_in_steps(message: Message, version: int) -> Generator[None, None, list[Buffer]]:
    """As `encode`, in steps: yields after each struct of a list.

    The caller decides after which steps other tasks run. The message must not change before the
    last step.

    Raises:
        ValueError: as `encode`.
    """
    try:
        prepared = yield from _prepared(message, version, _flexible(type(message), version), 0)
    except struct.error as e:
        raise ValueError(f"{type(message).__name__} v{version} cannot be encoded: {e}") from e
    return encode(prepared, version)


def encode_items(items: Iterable[Struct], message_type: type[Message], version: int) -> bytearray:
    """The adjacent bytes of structs of a message. The structs must have no record bytes."""
    tail = bytearray()
    flexible = _flexible(message_type, version)
    for item in items:
        tail = encoder(type(item), version, flexible)(item, tail, [])
    return tail


_LONG = 64
"""A list of fewer structs is encoded in one step with the struct that contains it."""
_PIECE = 64 << 10
S = TypeVar("S", bound=Struct)


def _prepared(owner: S, version: int, flexible: bool, least: int) -> Generator[None, None, S]:
    """A copy in which lists of at least `least` structs are encoded, also those in shorter lists.

    Without such lists, it is the struct itself.
    """
    changed: S | None = None
    for name, kind in lists_of_structs(type(owner)):
        field = owner.FIELDS[name]
        items: list[Struct] | Encoded | None = getattr(owner, name)
        if not items or type(items) is Encoded or field.tag is not None:
            continue
        items = cast("list[Struct]", items)
        if version not in field.versions:
            continue
        prepared: list[Struct] | Encoded = items
        if len(items) >= least:
            prepared = yield from _encoded(items, kind, version, flexible)
        elif lists_of_structs(kind):
            prepared = yield from _short(items, version, flexible)
        if prepared is not items:
            changed = changed or copy(owner)
            setattr(changed, name, prepared)
    return changed or owner


def _short(
    items: list[Struct], version: int, flexible: bool
) -> Generator[None, None, list[Struct]]:
    prepared = list(items)
    for at, item in enumerate(items):
        prepared[at] = yield from _prepared(item, version, flexible, _LONG)
    return items if all(map(is_, prepared, items)) else prepared


def _encoded(
    items: list[Struct], kind: type[Struct], version: int, flexible: bool
) -> Generator[None, None, Encoded]:
    write = encoder(kind, version, flexible)
    nests = bool(lists_of_structs(kind))
    buffers: list[Buffer] = []
    tail = bytearray()
    for item in items:
        if nests:
            item = yield from _prepared(item, version, flexible, _LONG)
        tail = write(item, tail, buffers)
        if len(tail) >= _PIECE:
            buffers.append(tail)
            tail = bytearray()
        yield
    buffers.append(tail)
    return Encoded(len(items), buffers)


def _decoder(message_type: type[Message], version: int) -> Decoder:
    function = decoder(message_type, version, _flexible(message_type, version))
    return _decoders.setdefault((message_type, version), function)


def _encoder(message_type: type[Message], version: int) -> Encoder:
    function = encoder(message_type, version, _flexible(message_type, version))
    return _encoders.setdefault((message_type, version), function)


def _flexible(message_type: type[Message], version: int) -> bool:
    if version not in message_type.versions:
        raise ValueError(f"{message_type.__name__} has no version {version}")
    return version in message_type.flexible
