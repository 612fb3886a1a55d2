"""What every op is made of, and its order on the wire.

An op travels as a msgpack array of its fields in declaration order. **Fields are only ever
appended**, always with a default: a reader ignores trailing values it does not know and takes
the default for those that are missing. Nested ops are nested arrays.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Container, Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import IntEnum
from operator import attrgetter
from typing import (
    Any,
    ClassVar,
    Generic,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from quafka_mesh_ops.errors import ProtocolError

Buffer = bytes | bytearray | memoryview
"""Bytes that are passed on by reference: as a field's type, for record batches and files.

A field of type `bytes` is a copy of its own. What is kept for long (metadata of members, ids) must
be one: a view of a few bytes would keep the whole frame in memory that it was received in.
"""


class OpCode(IntEnum):
    """What an envelope asks for."""

    PRODUCE = 0x02
    FETCH = 0x03
    LIST_OFFSETS = 0x04
    DELETE_TOPIC = 0x05
    DESCRIBE_TOPICS = 0x06
    CREATE_TOPIC = 0x07
    INIT_PRODUCER_ID = 0x08
    DELETE_RECORDS = 0x09
    JOIN_GROUP = 0x10
    SYNC_GROUP = 0x11
    HEARTBEAT = 0x12
    LEAVE_GROUP = 0x13
    COMMIT_OFFSETS = 0x14
    COMMITTED_OFFSETS = 0x15
    DELETE_OFFSETS = 0x16
    LIST_GROUPS = 0x17
    DESCRIBE_GROUPS = 0x18
    DELETE_GROUPS = 0x19
    GROUP_LAG = 0x1A
    LAG_OF_OFFSETS = 0x1B
    FORGET_TOPIC = 0x1F
    EPOCH_ENDS = 0x20
    HOLD_LEASE = 0x30
    PROBE = 0x31
    CREATE_PARTITIONS = 0x40
    DESCRIBE_TOPIC_CONFIGS = 0x41
    ALTER_TOPIC_CONFIGS = 0x42
    DESCRIBE_BROKER = 0x43
    DESCRIBE_LOG_DIR = 0x44
    DESCRIBE_PRODUCERS = 0x45
    ALTER_BROKER_CONFIGS = 0x46
    PIN_SNAPSHOT = 0x50
    READ_PINNED = 0x51
    UNPIN_SNAPSHOT = 0x52
    PIN_ORG = 0x53
    READ_ORG_PINNED = 0x54
    UNPIN_ORG = 0x55


class Part:
    """Base of everything that is encoded as an array of its fields."""

    __slots__ = ()


R = TypeVar("R", bound=Part, covariant=True)
Context = TypeVar("Context")
Shared = TypeVar("Shared")


class Op(Part, Generic[R]):
    """A request whose answer is an `R`: `class Probe(Op[ProbeResp])` says so once.

    Attributes:
        code: selects the broker's handler.
        response: `R`, at run time.
        reads: the op changes nothing, so it can be sent again if its answer was lost.
    """

    __slots__ = ()
    code: ClassVar[OpCode]
    response: type[R]
    reads: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Op:
                (cls.response,) = get_args(base)

    @overload
    @classmethod
    def handled_by(
        cls, handler: Callable[[Context, Self], Awaitable[R]]
    ) -> tuple[OpCode, Callable[[Context, Any], Awaitable[Part]]]: ...

    @overload
    @classmethod
    def handled_by(
        cls, handler: Callable[[Shared, Context, Self], Awaitable[R]]
    ) -> tuple[OpCode, Callable[[Shared, Context, Any], Awaitable[Part]]]: ...

    @classmethod
    def handled_by(cls, handler: Callable[..., Awaitable[Part]]) -> object:
        """An item for a table of handlers. The handler takes this op and returns its answer."""
        return cls.code, handler


AnyOp = Op[Part]


# --- the wire order -------------------------------------------------------------------------

P = TypeVar("P", bound=Part)
_Read = Callable[[Any], Any]
_SCALARS: dict[object, tuple[type, ...]] = {
    int: (int,),
    str: (str,),
    bool: (bool,),
    Buffer: (bytes, memoryview, bytearray),
}


def to_wire(part: Part, without: Container[int] = ()) -> list[Any]:
    """The op as a fixed-order array of msgpack values. Record bytes are passed by reference.

    Fields in the places `without` are left as they are.
    """
    form = _form(type(part))
    values = list(form.get(part))
    for place in form.nested:
        if place not in without:
            values[place] = _write(values[place])
    return values


def long_lists(part: Part) -> dict[int, list[Any]]:
    """The fields that list so many parts that the op is to be written in steps, by place."""
    form = _form(type(part))
    if not form.listed:
        return {}
    values = form.get(part)
    return {place: values[place] for place in form.listed if _lists_many(values[place])}


def _lists_many(items: list[Part] | None) -> bool:
    """Whether there are many parts in a list, or in one of those that they list."""
    if not items:
        return False
    if len(items) >= _LONG:
        return True
    return bool(_form(type(items[0])).listed) and any(map(long_lists, items))


def from_wire(part_type: type[P], values: object) -> P:
    """Read an op from its array.

    Raises:
        ProtocolError: not an array, too few values, or one of the wrong type.
    """
    form = _form(part_type)
    if not isinstance(values, list):
        raise ProtocolError(f"{part_type.__name__} is not an array")
    items = cast("list[Any]", values)
    if list(map(type, items)) == form.plain and not any(items[place] for place in form.lists):
        return part_type(*items)
    try:
        return part_type(*[read(value) for read, value in zip(form.readers, items, strict=False)])
    except TypeError as e:
        raise ProtocolError(f"{part_type.__name__}: {e}") from e


def from_wire_in_steps(part_type: type[P], values: object) -> Generator[None, None, P]:
    """Like `from_wire`, a step at a time: yields after each few parts of a list."""
    form = _form(part_type)
    if not isinstance(values, list):
        raise ProtocolError(f"{part_type.__name__} is not an array")
    items = cast("list[Any]", values)
    fields_read: list[Any] = []
    for place, (read, value) in enumerate(zip(form.readers, items, strict=False)):
        kind = form.listed.get(place)
        if kind is None or not isinstance(value, list):
            fields_read.append(read(value))
        else:
            fields_read.append((yield from _parts_in_steps(kind, cast("list[Any]", value))))
    try:
        return part_type(*fields_read)
    except TypeError as e:
        raise ProtocolError(f"{part_type.__name__}: {e}") from e


def _parts_in_steps(kind: type[P], values: list[Any]) -> Generator[None, None, list[P]]:
    parts: list[P] = []
    nests = bool(_form(kind).listed)
    for number, value in enumerate(values):
        parts.append((yield from from_wire_in_steps(kind, value)) if nests
                     else from_wire(kind, value))  # fmt: skip
        if number & (_STEP - 1) == _STEP - 1:
            yield
    return parts


def weight(part: Part) -> int:
    """About how many bytes of memory the lists of an op take, beyond what they hold."""
    values = _form(type(part)).get(part)
    return _BYTES_PER_ITEM * sum(len(cast("list[Any]", v)) for v in values if isinstance(v, list))


_MANY = 1_000
_LONG = 256
_STEP = 32  # a power of two
_BYTES_PER_ITEM = 256  # of an object with its few numbers, and its place in the list


def _write(value: Any) -> Any:
    if isinstance(value, Part):
        return to_wire(value)
    if isinstance(value, list):
        return [_write(item) for item in cast("list[Any]", value)]
    return value


@dataclass(frozen=True, slots=True)
class _Form:
    """What is known of a part's wire order.

    A fetch of a thousand partitions is a thousand parts each way: those that have nothing in
    their lists and optional fields are read and written without a call for each field.
    """

    get: Callable[[Any], tuple[Any, ...]]
    readers: tuple[_Read, ...]
    nested: tuple[int, ...]
    """The fields that are, or have in them, parts."""
    listed: dict[int, type[Part]]
    """The fields that are lists of parts, and of which."""
    lists: tuple[int, ...]
    plain: list[type]
    """The fields' types in the plainest case: optional ones are None."""


_forms: dict[type[Part], _Form] = {}


def _form(part_type: type[Part]) -> _Form:
    form = _forms.get(part_type)
    if form is None:
        hints = get_type_hints(part_type)
        names = [field.name for field in fields(cast(Any, part_type))]
        plain = [_plain_type(hints[name]) for name in names]
        form = _forms[part_type] = _Form(
            _getter(names),
            tuple(_reader(hints[name], name) for name in names),
            tuple(place for place, name in enumerate(names) if _has_parts(hints[name])),
            {
                place: kind
                for place, name in enumerate(names)
                if (kind := _listed(hints[name])) is not None
            },
            tuple(place for place, kind in enumerate(plain) if kind is list),
            plain,
        )
    return form


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda part: ()
    get = attrgetter(*names)
    return lambda part: (get(part),)


def _plain_type(hint: Any) -> type:
    """The type that a field's value mostly has; `Part` where it takes a closer look."""
    if hint is Buffer:
        return bytes
    if get_origin(hint) is list:
        return list
    if type(None) in get_args(hint):
        return type(None)
    return hint if hint is bytes or hint in _SCALARS else Part


def _listed(hint: Any) -> type[Part] | None:
    """What a list that may be missing is a list of, where that is a part."""
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        return item if isinstance(item, type) and issubclass(item, Part) else None
    return next((kind for each in get_args(hint) if (kind := _listed(each)) is not None), None)


def _has_parts(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, Part):
        return True
    return any(map(_has_parts, get_args(hint)))


def _reader(hint: Any, name: str) -> _Read:
    """A function that checks and converts one msgpack value to the field's declared type."""
    scalar = _SCALARS.get(hint)
    if scalar is not None:
        return _scalar_reader(scalar, name)
    if hint is bytes:
        return _bytes_reader(name)
    if get_origin(hint) is list:
        (item_hint,) = get_args(hint)
        if item_hint in (int, str, bool):
            return _plain_list_reader(item_hint, name)
        return _list_reader(_reader(item_hint, name), name)
    if isinstance(hint, type) and issubclass(hint, Part):
        return lambda value: from_wire(hint, value)
    present = [arg for arg in get_args(hint) if arg is not type(None)]
    if len(present) == 1:
        read = _reader(present[0], name)
        return lambda value: None if value is None else read(value)
    raise AssertionError(f"no wire form for {hint} ({name})")


def _scalar_reader(allowed: tuple[type, ...], name: str) -> _Read:
    def read(value: Any) -> Any:
        if type(value) not in allowed:
            raise ProtocolError(f"{name} has type {type(value).__name__}")
        return value

    return read


def _bytes_reader(name: str) -> _Read:
    """Takes what Buffer takes: how a payload was read (see by_reference) is no property of it."""

    def read(value: Any) -> bytes:
        if type(value) is bytes:
            return value
        if type(value) not in _SCALARS[Buffer]:
            raise ProtocolError(f"{name} has type {type(value).__name__}")
        return bytes(value)

    return read


@contextmanager
def without_gc() -> Generator[None]:
    """For making many objects none of which is garbage: to look for some takes longer than that."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _plain_list_reader(kind: type, name: str) -> _Read:
    """Of 100,000 numbers, in a millisecond."""

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ProtocolError(f"{name} is not an array")
        items = cast("list[Any]", value)
        for found in set(map(type, items)):
            if found is not kind:
                raise ProtocolError(f"{name} has type {found.__name__}")
        return items

    return read


def _list_reader(read_item: _Read, name: str) -> _Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ProtocolError(f"{name} is not an array")
        items = cast("list[Any]", value)
        if len(items) < _MANY:
            return [read_item(item) for item in items]
        with without_gc():
            return [read_item(item) for item in items]

    return read
