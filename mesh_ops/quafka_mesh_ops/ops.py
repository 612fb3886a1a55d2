"""The ops that gateway and broker exchange: frozen types, their codes and their wire order.

An op travels as a msgpack array of its fields in declaration order. **Fields are only ever
appended**, always with a default: a reader ignores trailing values it does not know and takes
the default for those that are missing. Nested ops are nested arrays.

The codes 0x02 to 0x05 and the first fields of FetchOp and FetchOpResp are Rafka's (seed 1); its
`records` were bare values, ours are stored record batches, byte for byte. Times are
milliseconds since the Unix epoch, `error_code` is a Kafka error code (0: none), `topic_id` is
the topic's UUID as 16 bytes (empty: address by name).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

from quafka_mesh_ops.errors import ProtocolError

Buffer = bytes | bytearray | memoryview
"""Record bytes travel by reference wherever they can."""


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
    EPOCH_ENDS = 0x20
    HOLD_LEASE = 0x30


class Part:
    """Base of everything that is encoded as an array of its fields."""

    __slots__ = ()


class Op(Part):
    """A request. `code` selects the broker's handler, `response` the answer's type."""

    __slots__ = ()
    code: ClassVar[OpCode]
    response: ClassVar[type[Part]]


# --- Produce 0x02 ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProduceOp(Part):
    """Record batches for one partition, as the client sent them."""

    topic: str
    partition: int
    records: Buffer
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class ProduceOpResp(Part):
    """Where the first record went. Answered after the group commit that holds the batches."""

    base_offset: int
    error_code: int = 0
    log_append_time: int = -1
    log_start_offset: int = 0
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class ProduceOpsResp(Part):
    """One answer per ProduceOp, in the order of the request."""

    partitions: list[ProduceOpResp]


@dataclass(frozen=True, slots=True)
class ProduceOps(Op):
    """One Kafka produce request. `acks`: 0, 1 or -1, as in Kafka."""

    code = OpCode.PRODUCE
    response = ProduceOpsResp
    partitions: list[ProduceOp]
    acks: int = -1


# --- Fetch 0x03 -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchOp(Part):
    """What to read from one partition: at most `max_bytes`, from `fetch_offset` on.

    The epochs are Kafka's leader epochs, -1 where the client names none: that of the leader it
    believes in, and that of the last record it has.
    """

    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    topic_id: bytes = b""
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(frozen=True, slots=True)
class EpochEnd(Part):
    """The offset behind the last record of a leader epoch; -1 and -1 where it is not known."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction(Part):
    """A transaction whose records a read_committed consumer must drop."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchOpResp(Part):
    """Stored record batches and the partition's watermarks.

    `diverging_epoch`: the log has less of the client's last fetched epoch than the client, who is
    to cut off what lies behind; then there are no records.
    `topic_id` is set where the op named the topic by its name.
    """

    records: list[Buffer]
    high_watermark: int
    error_code: int = 0
    log_start_offset: int = -1
    last_stable_offset: int = -1
    aborted_transactions: list[AbortedTransaction] | None = None
    diverging_epoch: EpochEnd | None = None
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class FetchOpsResp(Part):
    """One answer per FetchOp, in the order of the request.

    `leased`: nothing changed while it was read that holders of leases are told of (HoldLease), so
    it may be kept and given to others.
    """

    partitions: list[FetchOpResp]
    leased: bool = False


@dataclass(frozen=True, slots=True)
class FetchOps(Op):
    """One Kafka fetch request.

    The broker parks it until `min_bytes` can be read over all partitions, or `max_wait_ms` has
    passed, or any partition has an error. `isolation_level`: 0 read_uncommitted, 1
    read_committed. `replica_id`: -1 for consumers, 0 and up reads to the log end. Without
    `at_least_one`, a batch that is larger than `max_bytes` is not returned.
    """

    code = OpCode.FETCH
    response = FetchOpsResp
    partitions: list[FetchOp]
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = 0
    replica_id: int = -1
    at_least_one: bool = True


# --- ListOffsets 0x04 -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListOffsetsOp(Part):
    """The offset asked for: timestamp -2 earliest, -1 latest, or a time."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsOpResp(Part):
    """The offset found; -1 when nothing matches."""

    offset: int
    error_code: int = 0
    timestamp: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsOpsResp(Part):
    """One answer per ListOffsetsOp, in the order of the request."""

    partitions: list[ListOffsetsOpResp]


@dataclass(frozen=True, slots=True)
class ListOffsetsOps(Op):
    """One Kafka ListOffsets request."""

    code = OpCode.LIST_OFFSETS
    response = ListOffsetsOpsResp
    partitions: list[ListOffsetsOp]
    isolation_level: int = 0


# --- Topics 0x05 to 0x07 --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteTopicResp(Part):
    """The deleted topic, named both ways."""

    topic: str
    topic_id: bytes = b""
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTopic(Op):
    """Delete one topic, by name or, where `topic` is empty, by id."""

    code = OpCode.DELETE_TOPIC
    response = DeleteTopicResp
    topic: str
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class TopicDescription(Part):
    """A topic as Kafka's Metadata shows it, or the error for the one that was asked for."""

    topic: str
    topic_id: bytes
    partitions: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTopicsResp(Part):
    """The topics asked for, in the order asked; all of them, by name, where all were asked."""

    cluster_id: str
    topics: list[TopicDescription]


@dataclass(frozen=True, slots=True)
class DescribeTopics(Op):
    """Describe topics by name and by id. `topics` None: all.

    `auto_create` makes the named ones that are missing, where the broker's
    `auto.create.topics.enable` allows it.
    """

    code = OpCode.DESCRIBE_TOPICS
    response = DescribeTopicsResp
    topics: list[str] | None = None
    topic_ids: list[bytes] | None = None
    auto_create: bool = False


@dataclass(frozen=True, slots=True)
class ConfigEntry(Part):
    """A config that a client wants to set. `value` None: nothing was given."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class EffectiveConfig(Part):
    """A config of a topic. `source`: Kafka's number for where its value comes from."""

    name: str
    value: str
    source: int


@dataclass(frozen=True, slots=True)
class CreateTopicResp(Part):
    """The created topic, or why it was not."""

    topic_id: bytes
    partitions: int
    error_code: int = 0
    error_message: str = ""
    configs: list[EffectiveConfig] | None = None


@dataclass(frozen=True, slots=True)
class CreateTopic(Op):
    """Create one topic. `partitions` -1: the broker's `num.partitions`."""

    code = OpCode.CREATE_TOPIC
    response = CreateTopicResp
    topic: str
    partitions: int = -1
    validate_only: bool = False
    configs: list[ConfigEntry] | None = None


# --- Producers 0x08 -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitProducerIdResp(Part):
    """A producer id that no other producer of this broker has or will have."""

    producer_id: int
    producer_epoch: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class InitProducerId(Op):
    """Ask for a producer id, or (KIP-360) for the next epoch of the one given."""

    code = OpCode.INIT_PRODUCER_ID
    response = InitProducerIdResp
    producer_id: int = -1
    producer_epoch: int = -1


# --- DeleteRecords 0x09 ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteRecordsOp(Part):
    """Delete a partition's records below `offset`; -1: all there are."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeleteRecordsOpResp(Part):
    """Where the partition begins now."""

    low_watermark: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class DeleteRecordsOpsResp(Part):
    """One answer per DeleteRecordsOp, in the order of the request."""

    partitions: list[DeleteRecordsOpResp]


@dataclass(frozen=True, slots=True)
class DeleteRecordsOps(Op):
    """One Kafka DeleteRecords request. Durable when it is answered."""

    code = OpCode.DELETE_RECORDS
    response = DeleteRecordsOpsResp
    partitions: list[DeleteRecordsOp]


# --- OffsetForLeaderEpoch 0x20 --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochEndOp(Part):
    """Where `leader_epoch` ends. `current_leader_epoch`: as in FetchOp."""

    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class EpochEndOpResp(Part):
    """The greatest epoch at or below the one asked for, and its end; -1 and -1: not known."""

    end: EpochEnd
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class EpochEndOpsResp(Part):
    """One answer per EpochEndOp, in the order of the request."""

    partitions: list[EpochEndOpResp]


@dataclass(frozen=True, slots=True)
class EpochEndOps(Op):
    """One Kafka OffsetForLeaderEpoch request."""

    code = OpCode.EPOCH_ENDS
    response = EpochEndOpsResp
    partitions: list[EpochEndOp]


# --- Leases 0x30 ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change(Part):
    """What was read of a partition is not to be served any more. `partition` -1: of all."""

    topic: str
    topic_id: bytes
    partition: int = -1


@dataclass(frozen=True, slots=True)
class HoldLeaseResp(Part):
    """The lease runs for `valid_ms` from when it was asked for.

    `changes` are those after the ones heard of, up to `serial`. `forget`: not all of them are
    known any more; nothing that was learned before counts. `incarnation` names this run of the
    broker: what another one said, bytes included, counts for nothing.
    """

    incarnation: bytes
    serial: int
    valid_ms: int
    forget: bool
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class HoldLease(Op):
    """Ask for the lease under which fetches may be answered from memory, or for a longer one.

    While `holder` (random bytes) has a lease, no topic is deleted and no log start moves until it
    has heard of the change: by asking again with that change's serial as `heard`. The op is parked
    for a while if there is nothing to say.
    """

    code = OpCode.HOLD_LEASE
    response = HoldLeaseResp
    holder: bytes
    incarnation: bytes = b""
    heard: int = -1


OPS: dict[int, type[Op]] = {
    op.code: op
    for op in (
        ProduceOps,
        FetchOps,
        ListOffsetsOps,
        DeleteTopic,
        DescribeTopics,
        CreateTopic,
        InitProducerId,
        DeleteRecordsOps,
        EpochEndOps,
        HoldLease,
    )
}


# --- the wire order -------------------------------------------------------------------------

P = TypeVar("P", bound=Part)
_Read = Callable[[Any], Any]
_SCALARS: dict[object, tuple[type, ...]] = {
    int: (int,),
    str: (str,),
    bool: (bool,),
    bytes: (bytes,),
    Buffer: (bytes, memoryview, bytearray),
}


def to_wire(part: Part) -> list[Any]:
    """The op as a fixed-order array of msgpack values. Record bytes are passed by reference."""
    form = _form(type(part))
    values = list(form.get(part))
    for place in form.nested:
        values[place] = _write(values[place])
    return values


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


def weight(part: Part) -> int:
    """About how many bytes of memory the lists of an op take, beyond what they hold."""
    values = _form(type(part)).get(part)
    return _BYTES_PER_ITEM * sum(len(cast("list[Any]", v)) for v in values if isinstance(v, list))


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
            tuple(place for place, kind in enumerate(plain) if kind is list),
            plain,
        )
    return form


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
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
    return hint if hint in _SCALARS else Part


def _has_parts(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, Part):
        return True
    return any(map(_has_parts, get_args(hint)))


def _reader(hint: Any, name: str) -> _Read:
    """A function that checks and converts one msgpack value to the field's declared type."""
    scalar = _SCALARS.get(hint)
    if scalar is not None:
        return _scalar_reader(scalar, name)
    if get_origin(hint) is list:
        (item_hint,) = get_args(hint)
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


def _list_reader(read_item: _Read, name: str) -> _Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ProtocolError(f"{name} is not an array")
        return [read_item(item) for item in cast("list[Any]", value)]

    return read
