"""The broker's settings."""

from __future__ import annotations

import re
from pathlib import Path

from quafka_broker.config.redis_grants import Grant, parse_grants
from quafka_mesh_ops import settings
from quafka_mesh_ops.grants import ALLOWED
from quafka_mesh_ops.node_ids import parse_node_id
from quafka_mesh_ops.settings import OpsSettings, setting, settings_class
from quafka_mesh_ops.transport import connection_limits
from quafka_objects.address import parse_address
from quafka_objects.costs import parse_prices
from quafka_objects.errors import StoreAddressError
from quafka_proto.cluster_limits import MOST_SHARDS

BROKER_OPERATIONS = "127.0.0.1:9193"
"""The default address of the operations pages."""
_MAX_LONG = (1 << 63) - 1
_RRL_PART = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def _optional_retention(text: str) -> int | None:
    return settings.whole(-1, _MAX_LONG)(text) if text else None


def _rrl_part(text: str) -> str:
    if _RRL_PART.fullmatch(text) is None:
        raise ValueError(text)
    return text


def _optional_rrl_part(text: str) -> str:
    return _rrl_part(text) if text else ""


def broker_addresses(text: str) -> tuple[str, ...]:
    """Parse NODE_ID@host:port, separated by commas; the result has the same form.

    Raises:
        ValueError: a part has another form, or a node or an address occurs twice.
    """
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        node_id, at, where = part.partition("@")
        node_id, where = parse_node_id(node_id), settings.address(where)
        if (
            not at
            or node_id in found
            or where in found.values()
            or not settings.split_address(where)[1]
        ):
            raise ValueError(part)
        found[node_id] = where
    return tuple(f"{node_id}@{where}" for node_id, where in found.items())


class StoreUrl(str):
    """The URL of an object store, or of a folder that serves as one (`file:///…`)."""

    __slots__ = ()


def data_place(text: str) -> Path | StoreUrl:
    """Parse a path, or the URL of an object store.

    Raises:
        ValueError: it is neither.
    """
    if "://" not in text:
        return settings.path(text)
    try:
        parse_address(text)
    except StoreAddressError as e:
        raise ValueError(str(e)) from e
    return StoreUrl(text)


def prices(text: str) -> str:
    """Check a table of prices. Raises ValueError."""
    parse_prices(text)
    return text


@settings_class
class LogSettings(OpsSettings):
    """The settings of the log, its topics, groups and snapshots."""

    data: Path | StoreUrl = setting(
        Path("./quafka-data"), "folder of the log and the keys, or the URL of the object store "
        "that holds the log", data_place, "a path, s3://…, gs://…, az://… or file:///…",
        brief="folder of the log, or URL of its object store",
    )  # fmt: skip
    cache: Path = setting(
        Path("./quafka-cache"), "with data in an object store: local folder for the keys and for "
        "disposable copies", settings.path, "a path",
    )  # fmt: skip
    store_shards: int = setting(
        4, "number of shards of a cluster, the parts of its log that are spread over brokers; "
        "fixed when its first broker starts", settings.whole(1, MOST_SHARDS), "1 to 1024",
    )  # fmt: skip
    store_cache_bytes: int = setting(
        1 << 30, "with data in an object store: disk space for copies, in bytes",
        settings.whole(64 << 20, 1 << 50), "67108864 to 1125899906842624",
    )  # fmt: skip
    store_timeout_ms: int = setting(
        10_000, "how long the object store may be silent before appends are refused with "
        "retriable errors, in ms", settings.whole(100, 600_000), "100 to 600000",
    )  # fmt: skip
    store_view_interval_ms: int = setting(
        30_000, "with data in an object store: minimum time between two views of the log for "
        "Spark, unless topics have changed, in ms", settings.whole(1_000, 86_400_000),
        "1000 to 86400000",
    )  # fmt: skip
    store_grace_ms: int = setting(
        600_000, "with data in an object store: how long objects that the log no longer needs "
        "are kept for readers that still use them, in ms", settings.whole(60_000, 604_800_000),
        "60000 to 604800000",
    )  # fmt: skip
    store_prices: str = setting(
        "put=0.005,get=0.0004,stored=0.023,read=0,written=0", "prices of the object store in "
        "dollars, for the estimate on the status page: per 1,000 requests that write (put) or "
        "read (get), per GB stored for a month, per GB that leaves (read) or enters (written) the "
        "store",
        prices, "name=dollars, separated by commas",
    )  # fmt: skip
    cluster_env: str = setting(
        "default", "environment in the RRLs of topics: org/env/cluster/topics/slug",
        _rrl_part, "1 to 64 of a-z, A-Z, 0-9, _, -",
    )  # fmt: skip
    cluster_name: str = setting(
        "", "the cluster's name in RRLs; default: the cluster's id",
        _optional_rrl_part, "up to 64 of a-z, A-Z, 0-9, _, -",
    )  # fmt: skip
    num_partitions: int = setting(
        1, "number of partitions of topics that are created without a count",
        settings.whole(1, 100_000), "1 to 100000",
        brief="partitions of topics that are created without a count",
    )  # fmt: skip
    max_partitions_per_topic: int = setting(
        20_000, "maximum number of partitions of a topic",
        settings.whole(1, 100_000), "1 to 100000",
    )  # fmt: skip
    max_partitions_per_org: int = setting(
        200_000, "maximum number of partitions of all topics of an org; each topic has at least "
        "one",
        settings.whole(1, 10_000_000), "1 to 10000000",
    )  # fmt: skip
    auto_create_topics_enable: bool = setting(
        True, "create a topic when a client first asks for it", settings.boolean, "true, false"
    )
    message_max_bytes: int = setting(
        1_048_588, "largest record batch accepted, in bytes",
        settings.whole(61, 100 << 20), "61 to 104857600",
    )  # fmt: skip
    log_message_timestamp_type: str = setting(
        "CreateTime", "whether records carry the producer's time or the broker's",
        settings.choice("CreateTime", "LogAppendTime"), "CreateTime, LogAppendTime",
    )  # fmt: skip
    log_message_timestamp_before_max_ms: int = setting(
        _MAX_LONG, "how far in the past a record's time may be, in ms",
        settings.whole(0, _MAX_LONG), "0 or more",
    )  # fmt: skip
    log_message_timestamp_after_max_ms: int = setting(
        3_600_000, "how far in the future a record's time may be, in ms",
        settings.whole(0, _MAX_LONG), "0 or more",
    )  # fmt: skip
    log_cleanup_policy: str = setting(
        "delete", "cleanup.policy of topics that do not set it",
        settings.choice("delete", "compact", "compact,delete", "delete,compact", ""),
        "delete, compact, both, or nothing",
    )  # fmt: skip
    log_retention_hours: int = setting(
        -1, "how long records are kept, by their timestamps, in hours; Kafka's default is 168",
        settings.whole(-1, 1 << 31), "-1 (for ever) or more",
        brief="how long records are kept, such as 7d; -1: for ever",
    )  # fmt: skip
    log_retention_ms: int | None = setting(
        None, "as log.retention.hours, but in ms; overrides it",
        _optional_retention, "-1 (for ever) or more",
    )  # fmt: skip
    log_retention_bytes: int = setting(
        -1, "size of a partition above which its oldest records are deleted, in bytes",
        settings.whole(-1, _MAX_LONG), "-1 (no limit) or more",
        brief="bytes kept of a partition, such as 10GiB; -1: no limit",
    )  # fmt: skip
    log_retention_check_interval_ms: int = setting(
        300_000, "interval between searches for records to delete, in ms",
        settings.whole(100, 86_400_000), "100 to 86400000",
    )  # fmt: skip
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5, "min.cleanable.dirty.ratio of topics that do not set it",
        settings.ratio, settings.RATIO,
    )  # fmt: skip
    log_cleaner_min_compaction_lag_ms: int = setting(
        0, "min.compaction.lag.ms of topics that do not set it",
        settings.whole(0, _MAX_LONG), "0 or more",
    )  # fmt: skip
    log_cleaner_max_compaction_lag_ms: int = setting(
        _MAX_LONG, "max.compaction.lag.ms of topics that do not set it",
        settings.whole(1, _MAX_LONG), "1 or more",
    )  # fmt: skip
    log_cleaner_delete_retention_ms: int = setting(
        86_400_000, "delete.retention.ms of topics that do not set it",
        settings.whole(0, _MAX_LONG), "0 or more",
    )  # fmt: skip
    log_cleaner_enable: bool = setting(
        True, "compact topics with cleanup.policy=compact; requires wal.rewrite",
        settings.boolean, "true, false",
    )  # fmt: skip
    log_cleaner_backoff_ms: int = setting(
        15_000, "interval between searches for partitions to compact, in ms",
        settings.whole(100, 86_400_000), "100 to 86400000",
    )  # fmt: skip
    log_cleaner_dedupe_buffer_size: int = setting(
        128 << 20, "memory for the keys of one compaction pass, in bytes; a key takes 56",
        settings.whole(16 << 20, 16 << 30), "16777216 to 17179869184",
    )  # fmt: skip
    log_cleaner_max_wait_ms: int = setting(
        3_600_000, "how long compaction of a partition is put off if many bytes must be rewritten "
        "for few dirty ones, in ms", settings.whole(0, 2_592_000_000), "0 to 2592000000",
    )  # fmt: skip
    max_producers_per_org: int = setting(
        100_000, "maximum number of idempotent producers that the broker remembers for an org, "
        "counted once for each partition they write to; beyond it, those silent for longest must "
        "begin a new epoch; also the limit of new ids for idempotent producers of an org in an "
        "hour, which is at least 1,000",
        settings.whole(1, 10_000_000), "1 to 10000000",
    )  # fmt: skip
    producer_id_expiration_ms: int = setting(
        86_400_000, "how long the broker remembers a silent idempotent producer, in ms",
        settings.whole(1, _MAX_LONG), "1 or more",
    )  # fmt: skip
    transaction_max_timeout_ms: int = setting(
        900_000, "longest timeout of a transaction, in ms; a transaction that stays open longer "
        "than its producer's timeout is aborted", settings.whole(1, (1 << 31) - 1),
        "1 to 2147483647",
    )  # fmt: skip
    transactional_id_expiration_ms: int = setting(
        604_800_000, "how long the broker remembers an unused transactional id, in ms",
        settings.whole(1, _MAX_LONG), "1 or more",
    )  # fmt: skip
    transaction_max_ids_per_org: int = setting(
        50_000, "maximum number of transactional ids of an org",
        settings.whole(1, 10_000_000), "1 to 10000000",
    )  # fmt: skip
    transaction_max_partitions: int = setting(
        10_000, "maximum number of partitions and groups of a transaction, and of offsets in it",
        settings.whole(1, 20_000), "1 to 20000",
    )  # fmt: skip
    group_min_session_timeout_ms: int = setting(
        6_000, "shortest session timeout of consumer group members, in ms",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_max_session_timeout_ms: int = setting(
        1_800_000, "longest session and rebalance timeout of consumer group members, in ms",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "how long a group that was empty waits for further members, in ms",
        settings.whole(0, 3_600_000), "0 to 3600000",
    )  # fmt: skip
    group_max_size: int = setting(
        10_000, "maximum number of members of a consumer group",
        settings.whole(1, 1_000_000), "1 to 1000000",
    )  # fmt: skip
    group_max_bytes: int = setting(
        96 << 20, "maximum memory for the members of a consumer group, with their metadata and "
        "assignments, in bytes", settings.whole(1 << 20, 1 << 30), "1048576 to 1073741824",
    )  # fmt: skip
    group_max_groups: int = setting(
        10_000, "maximum number of consumer groups of an org",
        settings.whole(1, 1_000_000), "1 to 1000000",
    )  # fmt: skip
    group_max_members: int = setting(
        50_000, "maximum number of members of all consumer groups of an org",
        settings.whole(1, 10_000_000), "1 to 10000000",
    )  # fmt: skip
    group_total_max_bytes: int = setting(
        256 << 20, "maximum memory for the members of all consumer groups of an org, in bytes",
        settings.whole(1 << 20, 1 << 40), "1048576 to 1099511627776",
    )  # fmt: skip
    group_share_session_timeout_ms: int = setting(
        45_000, "how long a member of a share group may be silent before it is removed, in ms",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_share_min_session_timeout_ms: int = setting(
        45_000, "shortest share.session.timeout.ms of a share group",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_share_max_session_timeout_ms: int = setting(
        60_000, "longest share.session.timeout.ms of a share group",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_share_heartbeat_interval_ms: int = setting(
        5_000, "interval of the heartbeats of a share group's members, in ms",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_share_min_heartbeat_interval_ms: int = setting(
        5_000, "shortest share.heartbeat.interval.ms of a share group",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_share_max_heartbeat_interval_ms: int = setting(
        15_000, "longest share.heartbeat.interval.ms of a share group",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_share_assignment_interval_ms: int = setting(
        1_000, "minimum time between two assignments of a share group, in ms; a group with at most "
        "300 members and partitions is assigned at once",
        settings.whole(0, 3_600_000), "0 to 3600000",
    )  # fmt: skip
    group_share_min_assignment_interval_ms: int = setting(
        0, "shortest share.assignment.interval.ms of a group",
        settings.whole(0, 3_600_000), "0 to 3600000",
    )  # fmt: skip
    group_share_max_assignment_interval_ms: int = setting(
        15_000, "longest share.assignment.interval.ms of a group",
        settings.whole(0, 3_600_000), "0 to 3600000",
    )  # fmt: skip
    group_share_max_size: int = setting(
        200, "maximum number of members of a share group",
        settings.whole(1, 10_000), "1 to 10000",
    )  # fmt: skip
    group_share_record_lock_duration_ms: int = setting(
        30_000, "how long a member of a share group holds the records that it acquires, in ms",
        settings.whole(100, 3_600_000), "100 to 3600000",
    )  # fmt: skip
    group_share_min_record_lock_duration_ms: int = setting(
        15_000, "shortest share.record.lock.duration.ms of a share group",
        settings.whole(100, 3_600_000), "100 to 3600000",
    )  # fmt: skip
    group_share_max_record_lock_duration_ms: int = setting(
        60_000, "longest share.record.lock.duration.ms of a share group",
        settings.whole(100, 3_600_000), "100 to 3600000",
    )  # fmt: skip
    group_share_delivery_count_limit: int = setting(
        5, "how many times a share group delivers a record that is released or not acknowledged",
        settings.whole(2, 100), "2 to 100",
    )  # fmt: skip
    group_share_min_delivery_count_limit: int = setting(
        2, "lowest share.delivery.count.limit of a share group",
        settings.whole(1, 100), "1 to 100",
    )  # fmt: skip
    group_share_max_delivery_count_limit: int = setting(
        10, "highest share.delivery.count.limit of a share group",
        settings.whole(1, 100), "1 to 100",
    )  # fmt: skip
    group_share_min_partition_max_record_locks: int = setting(
        100, "lowest share.partition.max.record.locks of a share group",
        settings.whole(1, 10_000), "1 to 10000",
    )  # fmt: skip
    group_share_max_partition_max_record_locks: int = setting(
        4_000, "highest share.partition.max.record.locks of a share group",
        settings.whole(1, 10_000), "1 to 10000",
    )  # fmt: skip
    group_share_partition_max_record_locks: int = setting(
        2_000, "maximum number of offsets of a partition that a share group has in flight",
        settings.whole(10, 10_000), "10 to 10000",
    )  # fmt: skip
    group_share_max_partitions: int = setting(
        20_000, "maximum number of partitions that the share groups of an org read, counted for "
        "each group",
        settings.whole(1, 10_000_000), "1 to 10000000",
    )  # fmt: skip
    group_share_max_in_flight: int = setting(
        2_000_000, "maximum number of offsets that the share groups of an org have in flight",
        settings.whole(1_000, 1 << 40), "1000 to 1099511627776",
    )  # fmt: skip
    group_consumer_session_timeout_ms: int = setting(
        45_000, "session timeout of members of the consumer group protocol (KIP-848), in ms",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000, "how often members of the consumer group protocol send a heartbeat, in ms",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_consumer_min_session_timeout_ms: int = setting(
        45_000, "shortest consumer.session.timeout.ms of a group",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_consumer_max_session_timeout_ms: int = setting(
        60_000, "longest consumer.session.timeout.ms of a group",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_consumer_min_heartbeat_interval_ms: int = setting(
        5_000, "shortest consumer.heartbeat.interval.ms of a group",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15_000, "longest consumer.heartbeat.interval.ms of a group",
        settings.whole(1, 86_400_000), "1 to 86400000",
    )  # fmt: skip
    group_consumer_assignment_interval_ms: int = setting(
        1_000, "minimum time between two assignments of a group of the consumer group protocol, "
        "in ms; a group with at most 300 members and partitions is assigned at once",
        settings.whole(0, 3_600_000), "0 to 3600000",
    )  # fmt: skip
    group_consumer_min_assignment_interval_ms: int = setting(
        0, "shortest consumer.assignment.interval.ms of a group",
        settings.whole(0, 3_600_000), "0 to 3600000",
    )  # fmt: skip
    group_consumer_max_assignment_interval_ms: int = setting(
        15_000, "longest consumer.assignment.interval.ms of a group",
        settings.whole(0, 3_600_000), "0 to 3600000",
    )  # fmt: skip
    group_consumer_max_size: int = setting(
        10_000, "maximum number of members of a group of the consumer group protocol",
        settings.whole(1, 1_000_000), "1 to 1000000",
    )  # fmt: skip
    group_consumer_max_topics: int = setting(
        5_000, "maximum number of topics that a member of the consumer group protocol is "
        "subscribed to, by name or by a pattern", settings.whole(1, 100_000), "1 to 100000",
    )  # fmt: skip
    group_consumer_assignors: str = setting(
        "uniform,range", "assignors of the consumer group protocol that members may choose; the "
        "first is the default", settings.choice(
            "uniform,range", "range,uniform", "uniform", "range"
        ), "uniform, range, or both in either order",
    )  # fmt: skip
    group_consumer_migration_policy: str = setting(
        "bidirectional", "whether a group of the classic protocol switches to the consumer group "
        "protocol when a consumer that uses it joins (upgrade), and back to the classic protocol "
        "when only classic members are left (downgrade)",
        settings.choice("bidirectional", "upgrade", "downgrade", "disabled"),
        "bidirectional, upgrade, downgrade, disabled",
    )  # fmt: skip
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000, "how often the topics that a member's pattern matches are looked up while no "
        "topic is created or deleted, in ms",
        settings.whole(10_000, 86_400_000), "10000 to 86400000",
    )  # fmt: skip
    offsets_retention_minutes: int = setting(
        10_080,
        "how long the offsets of a consumer group are kept while it has no members, or while no "
        "member is subscribed to their topic, in minutes",
        settings.whole(1, 1 << 31), "1 to 2147483648",
    )  # fmt: skip
    offset_metadata_max_bytes: int = setting(
        4_096, "longest metadata of a committed offset, in bytes",
        settings.whole(0, 1 << 20), "0 to 1048576",
    )  # fmt: skip
    offset_commit_max_bytes: int = setting(
        16 << 20, "largest OffsetCommit, counting topic names and metadata, in bytes",
        settings.whole(1 << 20, 64 << 20), "1048576 to 67108864",
    )  # fmt: skip
    offsets_max_bytes: int = setting(
        512 << 20, "maximum memory for the committed offsets of an org, in bytes; an offset takes "
        "about 700", settings.whole(1 << 20, 1 << 40), "1048576 to 1099511627776",
    )  # fmt: skip
    security_max_orgs: int = setting(
        10_000, "maximum number of orgs that have a record",
        settings.whole(1, 1_000_000), "1 to 1000000",
    )  # fmt: skip
    security_max_users_per_org: int = setting(
        10_000, "maximum number of users of an org", settings.whole(1, 100_000), "1 to 100000"
    )
    security_max_acls_per_org: int = setting(
        10_000, "maximum number of ACLs of an org", settings.whole(1, 100_000), "1 to 100000"
    )
    security_max_quotas_per_org: int = setting(
        10_000, "maximum number of users, client ids and addresses of an org that have quotas of "
        "their own",
        settings.whole(1, 100_000), "1 to 100000",
    )  # fmt: skip
    wal_fsync: str = setting(
        "commit", "when a record is durable: before it is acknowledged, at most an interval "
        "later, or when the operating system writes it",
        settings.fsync, "commit, interval:<ms> (1 to 60000), never",
        brief="when a record is durable: commit, interval:<ms>, never",
    )  # fmt: skip
    wal_segment_bytes: int = setting(
        1 << 30, "size at which the log begins a new segment, in bytes",
        settings.whole(1 << 16, 16 << 30), "65536 to 17179869184",
    )  # fmt: skip
    wal_object_linger_ms: int = setting(
        50, "with data in an object store: minimum time between two objects of the log, in ms, "
        "reduced by the share of wal.object.bytes that waits; the first append after a pause does "
        "not wait",
        settings.whole(0, 10_000), "0 to 10000",
    )  # fmt: skip
    wal_object_bytes: int = setting(
        8 << 20, "bytes of waiting appends from which an object of the log is written at once",
        settings.whole(1 << 16, 64 << 20), "65536 to 67108864",
    )  # fmt: skip
    wal_checkpoint_bytes: int = setting(
        256 << 20, "bytes written between two checkpoints; a start reads at most this much",
        settings.whole(1 << 20, 16 << 30), "1048576 to 17179869184",
    )  # fmt: skip
    wal_reserve_bytes: int = setting(
        64 << 20, "space reserved for deletions when the disk is full, in bytes",
        settings.whole(0, 16 << 30), "0 (none) to 17179869184",
    )  # fmt: skip
    wal_rewrite: bool = setting(
        True, "rewrite old segments, to group records by partition and free deleted ones; if "
        "false, only segments without live records are removed",
        settings.boolean, "true, false",
    )  # fmt: skip
    wal_rewrite_bytes_per_second: int = setting(
        32 << 20, "maximum bytes per second that rewriting reads and writes",
        settings.whole(1 << 20, 16 << 30), "1048576 to 17179869184",
    )  # fmt: skip
    kafka_log_dirs: tuple[Path, ...] = setting(
        (), "log folders of one Apache Kafka broker, or its server.properties; their topics are "
        "served read only, and changes by a running Kafka are followed",
        settings.paths, "paths, separated by commas",
    )  # fmt: skip
    kafka_log_org: int = setting(
        1, "the org that owns the topics of kafka.log.dirs",
        settings.whole(1, 0xFFFFFFFF), "1 to 4294967295",
    )  # fmt: skip
    sources_redis_allowed: tuple[Grant, ...] = setting(
        (), "Redis servers that the topics of an org may name as their source, with the secret, "
        "database and streams that they may name there; without ORG@: of org 1, with any secret "
        "that no entry names",
        parse_grants,
        "[ORG@]host:port[/DB][?auth=file:NAME&stream=NAME], separated by commas",
    )  # fmt: skip
    sources_redis_secrets: Path | None = setting(
        None, "folder of the files with user:password that topics may name by auth=file:NAME",
        settings.optional_path, "a path",
    )  # fmt: skip
    sources_redis_ca_file: Path | None = setting(
        None, "file of the authorities that rediss:// trusts; default: the system's",
        settings.optional_path, "a path",
    )  # fmt: skip
    sources_redis_servers_per_org: int = setting(
        8, "maximum number of Redis servers that an org's topics use at a time; another database "
        "or another auth counts as a server, and each has up to 6 connections",
        settings.whole(1, 1_000), "1 to 1000",
    )  # fmt: skip
    sources_redis_timeout_ms: int = setting(
        5_000, "longest wait for an answer from a Redis server, in ms",
        settings.whole(100, 60_000), "100 to 60000",
    )  # fmt: skip
    sources_redis_answer_bytes: int = setting(
        32 << 20, "longest answer that the broker accepts from a Redis server, in bytes; up to 5 "
        "may be in memory for each server, and larger entries cannot be read",
        settings.whole(1 << 20, 1 << 30), "1048576 to 1073741824",
    )  # fmt: skip
    sources_redis_queued_bytes: int = setting(
        64 << 20, "maximum bytes of batches that wait for one Redis server",
        settings.whole(1 << 20, 1 << 30), "1048576 to 1073741824",
    )  # fmt: skip
    sources_redis_snapshot_bytes: int = setting(
        4 << 30, "maximum bytes of an org's records that a snapshot copies from Redis; 0: none",
        settings.whole(0, 1 << 44), "0 to 17592186044416",
    )  # fmt: skip
    snapshot_pins_max: int = setting(
        8, "maximum number of snapshot pins that one node, or all commands on this machine, may "
        "hold at a time", settings.whole(1, 1_000), "1 to 1000",
    )  # fmt: skip
    snapshot_pin_lease_ms: int = setting(
        600_000, "how long a pin that is held over the mesh lasts without a read, in ms",
        settings.whole(1_000, 86_400_000), "1000 to 86400000",
    )  # fmt: skip
    snapshot_pin_max_ms: int = setting(
        86_400_000, "longest lifetime of a pin, in ms; a pin keeps files that the log has freed",
        settings.whole(1_000, 2_592_000_000), "1000 to 2592000000",
    )  # fmt: skip
    snapshot_interval_ms: int = setting(
        0, "interval between the broker's own snapshots of all orgs, in ms",
        settings.whole(0, 2_592_000_000), "0 (never) to 2592000000",
    )  # fmt: skip
    snapshot_dest: str = setting(
        "", "destination of the broker's own snapshots: a folder on another disk, or a URL "
        "like s3://bucket/path",
        str, "DEST of `quafka snapshot`",
    )  # fmt: skip
    snapshot_keep: int = setting(
        24, "number of the broker's own snapshots to keep; snapshots made by commands are "
        "not removed",
        settings.whole(1, 10_000), "1 to 10000",
    )  # fmt: skip

    @property
    def folder(self) -> Path:
        """The local folder: the data folder or, if a store has the data, the cache."""
        return self.cache if isinstance(self.data, StoreUrl) else self.data

    @property
    def store(self) -> StoreUrl | None:
        """The object store that has the log, or None if the folder has it."""
        return self.data if isinstance(self.data, StoreUrl) else None


@settings_class
class BrokerConfig(LogSettings):
    """All settings of `quafka broker`."""

    mesh_listen: str = setting(
        "127.0.0.1:9192", "UDP address for gateways; port 0 picks a free port",
        settings.address, settings.ADDRESS,
        brief="UDP address for gateways",
    )  # fmt: skip
    mesh_advertised: str = setting(
        "", "with data in an object store: mesh address for gateways and other brokers; default: "
        "mesh.listen", settings.optional_address, settings.ADDRESS,
        brief="with an object store: mesh address that others connect to",
    )  # fmt: skip
    mesh_allow: tuple[str, ...] = setting(
        (), "nodes that may connect, with their rights, separated by commas; a bare node id "
        "has all rights",
        settings.allow_entries, ALLOWED,
        brief="node ids of the gateways",
    )  # fmt: skip
    mesh_allowed_file: Path | None = settings.mesh_allowed_file_setting("entries")
    mesh_brokers: tuple[str, ...] = setting(
        (), "the brokers that transactions may span, separated by commas; all brokers may have the "
        "same list; the others may connect to this one and have the right to coordinate",
        broker_addresses, "NODE_ID@host:port",
    )  # fmt: skip
    mesh_max_connections: int = setting(
        connection_limits.MOST, "most connections of nodes; each process of a gateway has one, "
        "and so has another broker",
        settings.whole(1, 1_000_000), "1 to 1000000",
    )  # fmt: skip
    mesh_max_connections_per_node: int = setting(
        connection_limits.MOST_OF_NODE, "most connections of one node; apart from this, one "
        "connection is kept free for each node on the allow-list that has none",
        settings.whole(1, 1_000_000), "1 to 1000000",
    )  # fmt: skip
    node_key: Path | None = setting(
        None, "file of this node's key, created if missing; default: node.key in data",
        settings.optional_path, "a path",
        brief="file of this node's key; default: node.key in data",
    )  # fmt: skip
    mesh_datagram_size: int | None = settings.mesh_datagram_size_setting()
    mesh_batched: bool = settings.mesh_batched_setting()
    mesh_records: str = settings.mesh_records_setting()
    mesh_bulk: str = settings.mesh_bulk_setting()
    ops_listen: str = settings.ops_listen_setting(BROKER_OPERATIONS)
    ops_port_fallback: bool = settings.ops_port_fallback_setting()
