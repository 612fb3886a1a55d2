"""The base types of ops: op codes, `Op`, and `WireStruct`, the base of all encoded types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import MISSING, Field, dataclass, fields
from enum import IntEnum
from typing import (
    Any,
    ClassVar,
    Generic,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    overload,
)

from quafka_proto.message import Struct as MessagePart

Buffer = bytes | bytearray | memoryview
"""Bytes that are passed by reference: the type of a field for record batches and files.

A field of type `bytes` holds a copy. Values that are kept for long (metadata of members, ids) must
have that type: a view of a few bytes keeps the whole received frame in memory.
"""


class OpCode(IntEnum):
    """The op that an envelope carries. 0x100 and the API key: its answer is that of a Kafka API."""

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
    OPEN_PLACES = 0x32
    OPEN_BULK = 0x33
    OPEN_SHARD = 0x34
    CLUSTER_MAP = 0x35
    LOOK_AT_SHARDS = 0x36
    OPEN_MEMORY = 0x37
    OPEN_PIECES = 0x38
    CREATE_PARTITIONS = 0x40
    DESCRIBE_TOPIC_CONFIGS = 0x41
    ALTER_TOPIC_CONFIGS = 0x42
    DESCRIBE_BROKER = 0x43
    DESCRIBE_LOG_DIR = 0x44
    DESCRIBE_PRODUCERS = 0x45
    ALTER_BROKER_CONFIGS = 0x46
    DESCRIBE_COMPACTION = 0x47
    PIN_SNAPSHOT = 0x50
    READ_PINNED = 0x51
    UNPIN_SNAPSHOT = 0x52
    PIN_ORG = 0x53
    READ_ORG_PINNED = 0x54
    UNPIN_ORG = 0x55
    INIT_TRANSACTIONS = 0x60
    ADD_PARTITIONS = 0x61
    ADD_OFFSETS = 0x62
    COMMIT_TXN_OFFSETS = 0x63
    END_TRANSACTION = 0x64
    WRITE_MARKERS = 0x65
    DESCRIBE_TRANSACTIONS = 0x66
    LIST_TRANSACTIONS = 0x67
    JOIN_TRANSACTION = 0x68
    FINISH_TRANSACTIONS = 0x69
    RESOLVE_TRANSACTIONS = 0x6A
    WATCH_SECURITY = 0x70
    ALTER_USERS = 0x71
    CREATE_ACLS = 0x72
    DELETE_ACLS = 0x73
    ALTER_QUOTAS = 0x74
    ALTER_ORG = 0x75
    CONSUMER_HEARTBEAT = 0x78
    PREVIOUS_DESCRIBE_CONSUMER_GROUPS = 0x79
    ACQUIRE_RECORDS = 0x80
    ACKNOWLEDGE_RECORDS = 0x81
    RELEASE_RECORDS = 0x82
    DESCRIBE_SHARE_OFFSETS = 0x83
    ALTER_SHARE_OFFSETS = 0x84
    DELETE_SHARE_OFFSETS = 0x85
    SHARE_GROUP_TOPICS = 0x86
    FORGET_SHARE_TOPICS = 0x87
    DESCRIBE_GROUP_CONFIGS = 0x88
    ALTER_GROUP_CONFIGS = 0x89
    LIST_GROUP_CONFIGS = 0x8A
    SHARE_GROUP_CONFIGS = 0x8B
    SHARE_HEARTBEAT = 0x8C
    PREVIOUS_DESCRIBE_SHARE_GROUPS = 0x8D
    CREATE_SHARE_GROUP = 0x8E
    DESCRIBE_CONSUMER_GROUPS = 0x145
    DESCRIBE_SHARE_GROUPS = 0x14D


class OpKind(IntEnum):
    """The kinds of ops; a gateway bounds the unanswered ops of each kind (scheduler.py)."""

    SMALL_OPS = 0
    FETCHES = 1
    RECORDS = 2
    GROUP_WAITS = 3


class WireStruct:
    """Base of everything that is encoded as an array of its fields.

    Two of one type are equal if all fields are equal.

    `carries_records`: its fields hold record batches, or what members of groups send each other:
    long ones are passed by reference.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    carries_records: ClassVar[bool] = False

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
        return f"{type(self).__name__}({shown})"


Struct = TypeVar("Struct", bound=WireStruct)


@dataclass_transform(frozen_default=True)
def wire_struct(struct: type[Struct]) -> type[Struct]:
    """Make a dataclass of a struct, which the type checkers take as frozen.

    At run time it is not: a frozen dataclass takes four times as long to make, which was a tenth of
    the mesh's share of a small op. Its methods are compiled when the first struct is made: to
    compile those of all types took a fifth of a start.
    """
    made = dataclass(slots=True, init=False, repr=False, eq=False)(struct)
    made.__init__ = _first_init  # type: ignore[assignment, method-assign]
    return made


def _first_init(self: WireStruct, *values: Any, **named: Any) -> None:
    """Replaced by the type's own `__init__` when its first struct is made."""
    for owner in type(self).__mro__:
        if owner.__dict__.get("__init__") is _first_init:
            _add_methods(owner)
            break
    self.__init__(*values, **named)  # type: ignore[misc]


def _add_methods(struct: type[WireStruct]) -> None:
    """Compile `__init__`, `__eq__` and `__hash__`, as a dataclass has them."""
    declared = fields(struct)
    scope: dict[str, Any] = {f"_{each.name}": each.default for each in declared}
    parameters = "".join(
        f", {each.name}" + ("" if each.default is MISSING else f"=_{each.name}")
        for each in declared
    )
    values, others = (
        f"({''.join(f'{owner}.{each.name}, ' for each in declared)})" for owner in ("self", "other")
    )
    lines = [
        f"def __init__(self{parameters}):",
        *(f" self.{each.name} = {each.name}" for each in declared),
        " return",
        "def __eq__(self, other):",
        f" return {values} == {others} if type(other) is type(self) else NotImplemented",
        f"def __hash__(self): return hash({values})",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 - the source has only our own field names
    for name in ("__init__", "__eq__", "__hash__"):
        scope[name].__qualname__ = f"{struct.__qualname__}.{name}"
        setattr(struct, name, scope[name])


AnyStruct = WireStruct | MessagePart
"""What travels as an array of its fields: ops and their parts, and Kafka's messages and theirs."""


def carries_records(struct: AnyStruct) -> bool:
    """See WireStruct."""
    return isinstance(struct, WireStruct) and struct.carries_records


R = TypeVar("R", bound=AnyStruct, covariant=True)
Context = TypeVar("Context")
Shared = TypeVar("Shared")


class Op(WireStruct, Generic[R]):
    """A request whose answer is an `R`, as in `class Probe(Op[ProbeResp])`.

    Attributes:
        code: selects the broker's handler.
        response: `R`, at run time.
        reads: the op changes nothing, so it can be sent again if its answer was lost.
        waits_for_news: an idle gateway has such an op in flight, too; no client waits for its
            answer, so it does not make the peers check on each other more often.
        parks: the broker holds such an op until there is news, and does nothing for it meanwhile.
    """

    __slots__ = ()
    code: ClassVar[OpCode]
    response: type[R]
    reads: ClassVar[bool] = False
    waits_for_news: ClassVar[bool] = False
    parks: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Op:
                (cls.response,) = get_args(base)

    @property
    def kind(self) -> OpKind:
        """The kind whose bounds this op counts for."""
        return OpKind.SMALL_OPS

    @property
    def parts(self) -> int:
        """The number of items in the op that a broker serves one by one."""
        return 1

    @property
    def packed_records(self) -> int:
        """The number of records that a broker has to unpack."""
        return 0

    @property
    def parked_bytes(self) -> int:
        """The bytes of memory of a parked op, besides those of the op itself."""
        return 0

    @overload
    @classmethod
    def handled_by(
        cls, handler: Callable[[Context, Self], Awaitable[R]]
    ) -> tuple[OpCode, Callable[[Context, Any], Awaitable[AnyStruct]]]: ...

    @overload
    @classmethod
    def handled_by(
        cls, handler: Callable[[Shared, Context, Self], Awaitable[R]]
    ) -> tuple[OpCode, Callable[[Shared, Context, Any], Awaitable[AnyStruct]]]: ...

    @classmethod
    def handled_by(cls, handler: Callable[..., Awaitable[AnyStruct]]) -> object:
        """Return the item of a handler table. The handler takes this op and returns an `R`."""
        return cls.code, handler


AnyOp = Op[AnyStruct]
"""An op of any type."""
