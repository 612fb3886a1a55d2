"""Requests of every Kafka API about resources that a principal may use and others that it may not.

Names that begin with "a-" are the principal's, as far as its rules go; those with "b-" never are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind
from quafka_proto.message import Request, Struct
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema import request_type

S = TypeVar("S", bound=Struct)
MINE, OTHERS = "a-", "b-"
TOPICS = [MINE + "t", OTHERS + "t"]
_GROUPS = [MINE + "g", OTHERS + "g"]
_IDS = [MINE + "x", OTHERS + "x"]
_OTHER_NAMES = ("1", "metrics")
_ANY = {"operation": int(Operation.ANY), "permission_type": int(Permission.ANY)}
Fields = dict[str, Any]
TopicIds = Mapping[str, bytes]
Call = Callable[[int, TopicIds], Fields]


def make(kind: type[S], fields: Fields) -> S:
    """A struct whose parts are given as dictionaries."""
    made: Fields = {}
    for name, value in fields.items():
        field = kind.FIELDS[name]
        parts = field.element.element if field.kind == "array" else field.element
        if isinstance(value, list) and value and isinstance(value[0], dict):
            made[name] = [make(parts, each) for each in value]
        elif isinstance(value, dict):
            made[name] = make(parts, value)
        else:
            made[name] = value
    return kind(**made)


def requests(key: int, version: int, ids: TopicIds) -> list[Request]:
    """The requests of an API in a version. `ids`: those of TOPICS."""
    kind = request_type(key)
    assert kind is not None
    calls = [CALLS[key], *(call for its, call in FURTHER if its == key)]
    return [make(kind, call(version, ids)) for call in calls]


def _named(field: str = "name", **rest: Any) -> list[Fields]:
    return [{field: name, **rest} for name in TOPICS]


def _named_or_not(by_id: bool, ids: TopicIds, field: str = "name", **rest: Any) -> list[Fields]:
    if not by_id:
        return _named(field, **rest)
    return [{"topic_id": ids[name], **rest} for name in TOPICS]


def _produce(version: int, ids: TopicIds) -> Fields:
    records = bytes(build_batch([Record(0, 0, None, b"v", [])]))
    data = [{"index": 0, "records": records}]
    topics = _named_or_not(version >= 13, ids, partition_data=data)
    return {"acks": -1, "timeout_ms": 5_000, "topic_data": topics}


def _fetch(version: int, ids: TopicIds) -> Fields:
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]
    topics = _named_or_not(version >= 13, ids, "topic", partitions=parts)
    return {
        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1_000, "session_epoch": -1,
        "topics": topics,
    }  # fmt: skip


def _metadata(version: int, ids: TopicIds) -> Fields:
    made = [{"name": MINE + "made"}, {"name": OTHERS + "made"}]
    return {
        "topics": [*_named(), *made],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": 8 <= version <= 10,
        "include_topic_authorized_operations": version >= 8,
    }


def _offset_commit(version: int, ids: TopicIds) -> Fields:
    parts = [{"partition_index": 0, "committed_offset": 1}]
    topics = _named_or_not(version >= 10, ids, partitions=parts)
    return {"group_id": MINE + "g", "topics": topics}


def _offset_fetch(version: int, ids: TopicIds) -> Fields:
    topics = _named_or_not(version >= 10, ids, partition_indexes=[0])
    if version < 8:
        return {"group_id": MINE + "g", "topics": topics}
    groups = [{"group_id": name, "topics": topics} for name in _GROUPS]
    return {"groups": groups}


def _find_coordinator(version: int, ids: TopicIds) -> Fields:
    if version < 4:
        return {"key": MINE + "g"}
    return {"coordinator_keys": _GROUPS}


def _add_partitions(version: int, ids: TopicIds) -> Fields:
    topics = _named(partitions=[0])
    if version >= 4:
        one = {"transactional_id": MINE + "x", "producer_id": 9_999, "topics": topics}
        return {"transactions": [one]}
    return {
        "v3_and_below_transactional_id": MINE + "x",
        "v3_and_below_producer_id": 9_999,
        "v3_and_below_topics": topics,
    }


def _delete_topics(version: int, ids: TopicIds) -> Fields:
    gone = [MINE + "gone", OTHERS + "gone"]
    if version < 6:
        return {"topic_names": gone, "timeout_ms": 5_000}
    return {"topics": [{"name": name} for name in gone], "timeout_ms": 5_000}


def _config_resources(**rest: Any) -> list[Fields]:
    names = {2: TOPICS, 4: ["1"], 8: ["1"], 16: ["metrics"], 32: _GROUPS}
    return [
        {"resource_type": kind, "resource_name": name, **rest}
        for kind, its in names.items()
        for name in its
    ]


def _configs(field: str) -> Call:
    change = {"name": "no.such.config", "value": "1"}

    def fields(version: int, ids: TopicIds) -> Fields:
        return {"validate_only": True, "resources": _config_resources(**{field: [change]})}

    return fields


def _members(**rest: Any) -> Call:
    return lambda version, ids: {"group_id": MINE + "g", "member_id": "nobody", **rest}


def _share(**rest: Any) -> Call:
    """With acknowledgements in the final request, and where nothing else is asked for."""

    def fields(version: int, ids: TopicIds) -> Fields:
        batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
        part = {
            "partition_index": 0,
            "acknowledgement_batches": [] if "max_bytes" in rest else [batch],
        }
        topics = [{"topic_id": ids[name], "partitions": [part]} for name in TOPICS]
        group = {"group_id": MINE + "share", "member_id": "AAAAAAAAAAAAAAAAAAAAAQ"}
        return {**group, "topics": topics, **rest}

    return fields


def _fixed(**fields: Any) -> Call:
    return lambda version, ids: fields


CALLS: dict[int, Call] = {
    0: _produce,
    1: _fetch,
    2: _fixed(topics=_named(partitions=[{"partition_index": 0, "timestamp": -1}])),
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _members(
        session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    ),
    12: _members(generation_id=1),
    13: lambda version, ids: {
        "group_id": MINE + "g", "member_id": "nobody",
        "members": [{"member_id": "nobody"}] if version >= 3 else [],
    },
    14: _members(generation_id=1, protocol_type="consumer", protocol_name="range"),
    15: lambda version, ids: {"groups": _GROUPS, "include_authorized_operations": version >= 3},
    16: _fixed(),
    19: _fixed(
        timeout_ms=5_000, validate_only=True,
        topics=[
            {"name": name, "num_partitions": 1, "replication_factor": 1}
            for name in (MINE + "new", OTHERS + "new")
        ],
    ),
    20: _delete_topics,
    21: _fixed(topics=_named(partitions=[{"partition_index": 0, "offset": 0}]), timeout_ms=5_000),
    22: _fixed(transactional_id=None, transaction_timeout_ms=10_000),
    23: _fixed(topics=_named("topic", partitions=[{"partition": 0, "leader_epoch": 0}])),
    24: _add_partitions,
    25: _fixed(transactional_id=MINE + "x", producer_id=9_999, group_id=MINE + "g"),
    26: _fixed(transactional_id=MINE + "x", producer_id=9_999),
    27: _fixed(
        markers=[{
            "producer_id": 9_999,
            "topics": [{"name": MINE + "none", "partition_indexes": [0]}],
        }],
    ),
    28: _fixed(
        transactional_id=MINE + "x", group_id=MINE + "g", producer_id=9_999,
        topics=_named(partitions=[{"partition_index": 0, "committed_offset": 1}]),
    ),
    29: lambda version, ids: {
        "resource_type_filter": int(ResourceKind.ANY), "resource_name_filter": None,
        "principal_filter": "User:nobody", "host_filter": None, **_ANY,
        **({"pattern_type_filter": int(Pattern.ANY)} if version else {}),
    },
    30: _fixed(
        creations=[{
            "resource_type": int(ResourceKind.TOPIC), "resource_name": "c",
            "principal": "User:nobody",
            "host": "*", "operation": int(Operation.READ), "permission_type": int(Permission.ALLOW),
        }],
    ),
    31: _fixed(
        filters=[{
            "resource_type_filter": int(ResourceKind.ANY), "resource_name_filter": None,
            "principal_filter": "User:nobody", "host_filter": None, **_ANY,
        }],
    ),
    32: _fixed(resources=_config_resources(configuration_keys=["none"])),
    33: _configs("configs"),
    34: _fixed(dirs=[{"path": "/none", "topics": _named(partitions=[0])}]),
    35: _fixed(topics=_named("topic", partitions=[0])),
    37: _fixed(topics=_named(count=2, assignments=None), timeout_ms=5_000, validate_only=True),
    42: _fixed(groups_names=[MINE + "gone", OTHERS + "gone"]),
    43: _fixed(topic_partitions=[{"topic": name, "partitions": [0]} for name in TOPICS]),
    44: _configs("configs"),
    45: _fixed(topics=_named(partitions=[{"partition_index": 0, "replicas": None}])),
    46: _fixed(topics=None),
    47: _fixed(group_id=MINE + "g", topics=_named(partitions=[{"partition_index": 0}])),
    48: _fixed(components=[{"entity_type": "user", "match_type": 0, "match": "nobody"}]),
    49: _fixed(
        validate_only=True,
        entries=[{
            "entity": [{"entity_type": "user", "entity_name": "nobody"}],
            "ops": [{"key": "producer_byte_rate", "value": 1.0}],
        }],
    ),
    50: _fixed(users=[{"name": "nobody"}]),
    51: _fixed(deletions=[{"name": "nobody", "mechanism": 1}]),
    55: _fixed(topics=[
        {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    ]),
    57: _fixed(feature_updates=[], timeout_ms=5_000),
    60: _fixed(include_cluster_authorized_operations=True),
    61: _fixed(topics=_named(partition_indexes=[0])),
    65: _fixed(transactional_ids=_IDS),
    66: _fixed(),
    68: _members(member_epoch=1, subscribed_topic_names=TOPICS[:1]),
    69: _fixed(group_ids=_GROUPS, include_authorized_operations=True),
    74: _fixed(),
    75: _fixed(topics=_named()),
    76: _members(member_epoch=1, subscribed_topic_names=TOPICS[:1]),
    77: _fixed(group_ids=_GROUPS, include_authorized_operations=True),
    78: _share(max_bytes=1 << 20, max_records=1),
    79: _share(),
    90: _fixed(groups=[{"group_id": name, "topics": None} for name in _GROUPS]),
    91: _fixed(group_id=OTHERS + "g", topics=[]),
    92: _fixed(group_id=OTHERS + "g", topics=[]),
}  # fmt: skip
"""The fields of each API's request, by version."""

FURTHER: list[tuple[int, Call]] = [
    (3, lambda version, ids: {"topics": None if version else []}),
    (9, lambda version, ids: {
        "groups": [{"group_id": name, "topics": None} for name in _GROUPS],
    } if version >= 8 else {"group_id": MINE + "g", "topics": None if version >= 2 else []}),
    (10, lambda version, ids: {
        "key": MINE + "x", "key_type": 1 if version else 0,
        "coordinator_keys": _IDS if version >= 4 else [],
    }),
    (22, _fixed(transactional_id=OTHERS + "x", transaction_timeout_ms=10_000)),
    (68, _members(member_epoch=1, subscribed_topic_names=TOPICS)),
    (75, _fixed(topics=[])),
    (79, _share(share_session_epoch=-1)),
]  # fmt: skip
"""The fields of further requests: listings of everything, and transactions."""


def outcome(response: Struct, names: Mapping[bytes, str]) -> dict[str, int]:
    """The resources in a response, and their error codes and authorized operations.

    `names`: of topics that are named by their ids.
    """
    return dict(_found(response, "", names))


def _found(part: Struct, path: str, names: Mapping[bytes, str]) -> Iterator[tuple[str, int]]:
    resource = _resource(part, names)
    path += resource
    if MINE in resource or OTHERS in resource:
        yield path, 0
    for name in part.FIELDS:
        value = getattr(part, name)
        if name.endswith(("error_code", "authorized_operations")):
            yield f"{path}.{name}", value
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Struct):
                yield from _found(each, f"{path}/{name}", names)


def _resource(part: Struct, names: Mapping[bytes, str]) -> str:
    words: list[str] = []
    for name in part.FIELDS:
        value = getattr(part, name)
        if isinstance(value, str) and (value.startswith((MINE, OTHERS)) or value in _OTHER_NAMES):
            words.append(value)
        elif isinstance(value, bytes) and value in names:
            words.append(f"id of {names[value]}")
        elif name in ("partition_index", "index", "partition", "resource_type"):
            words.append(str(value))
    return f"[{' '.join(words)}]" if words else ""
