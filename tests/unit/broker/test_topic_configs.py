"""The table of topic configs, its page, and that what a topic sets is enforced and survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import produce, topics
from quafka_broker.topics import configs as topic_configs
from quafka_broker.topics.config_table import TOPIC_CONFIGS, TopicConfig
from quafka_broker.topics.configs import ConfigError, policy
from quafka_broker.topics.topic import SOURCE
from quafka_loop import clock
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps
from quafka_mesh_ops.ops.topics import CreateTopic, CreateTopicResp
from quafka_mesh_ops.units import unit_of, with_unit
from quafka_proto.config_kinds import ConfigOperation
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import LOG_APPEND_TIME, crc32c, read_header
from quafka_proto.schema.configs import IncrementalAlterableConfig as Change
from quafka_proto.schema.topics import CreatableTopicConfig
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of, context, running_state

PAGE = Path(__file__).parents[3] / "docs" / "topic-configs.md"
HEAD = "| config | default | allowed | what it does |"
CONFIG = BrokerConfig(data=Path("unused"))
COMPACT = {"cleanup.policy": "compact"}


def default(known: TopicConfig) -> str:
    value = known.default if known.broker is None else str(known.broker(CONFIG))
    return f"`{with_unit(known.name, value)}`" if value else "empty"


def allowed(known: TopicConfig) -> str:
    unit = unit_of(known.name)
    return known.allowed if unit is None else unit.show_all(known.allowed)


def table() -> str:
    lines = [HEAD, "| --- | --- | --- | --- |"]
    lines += [
        f"| `{name}` | {default(known)} | {allowed(known)} | {known.effect} |"
        for name, known in sorted(TOPIC_CONFIGS.items())
    ]
    return "\n".join(lines) + "\n"


def test_every_config_is_on_the_page() -> None:
    assert table() in PAGE.read_text(), f"write it again: python -m {__name__}"


@pytest.mark.parametrize("known", TOPIC_CONFIGS.values(), ids=lambda known: known.name)
def test_defaults_are_allowed(known: TopicConfig) -> None:
    value = known.default if known.broker is None else str(known.broker(CONFIG))
    assert topic_configs.check({known.name: value}) == {known.name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", ","),
        ("cleanup.policy", "compact,keep"),
        ("compression.type", "brotli"),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "1_000"),
        ("max.message.bytes", "١"),
        ("max.message.bytes", ""),
        ("max.message.bytes", None),
        ("message.timestamp.type", "createtime"),
        ("retention.ms", "-2"),
        ("retention.ms", str(1 << 63)),
        ("min.insync.replicas", "2"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.compaction.lag.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("delete.retention.ms", "-1"),
        ("preallocate", "yes"),
        ("no.such.config", "1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: str | None) -> None:
    with pytest.raises(ConfigError, match=name):
        topic_configs.check({"retention.ms": "1", name: value})


@pytest.mark.parametrize("name", [name for name in TOPIC_CONFIGS if unit_of(name) is not None])
@pytest.mark.parametrize("value", ["1GiB", "7d", "5000ms", "4194304B"])
def test_kafka_s_protocol_has_plain_numbers(name: str, value: str) -> None:
    """Only commands turn units into numbers; a client that sends units is mistaken."""
    with pytest.raises(ConfigError, match=name):
        topic_configs.check({name: value})


@pytest.mark.parametrize("ratio", ["0", "1", "0.0", "1.0", ".5", "0.01", "1.0E-4"])
def test_a_ratio_as_java_prints_it(ratio: str) -> None:
    found = policy(CONFIG, topic_configs.check({"min.cleanable.dirty.ratio": ratio} | COMPACT))
    assert found.compaction is not None
    assert found.compaction.min_dirty_ratio == float(ratio)


def test_the_least_compaction_lag_is_not_above_the_greatest() -> None:
    broker = BrokerConfig(data=Path("unused"), log_cleaner_max_compaction_lag_ms=50)
    topic_configs.check_together(broker, {"min.compaction.lag.ms": "50"})
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms 51 .* 50"):
        topic_configs.check_together(broker, {"min.compaction.lag.ms": "51"})
    changes = [Change("max.compaction.lag.ms", ConfigOperation.SET, "4")]
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms 4"):
        topic_configs.changed(CONFIG, {"min.compaction.lag.ms": "5"}, {}, changes)


def test_compaction_by_the_topic_and_by_the_broker() -> None:
    broker = BrokerConfig(
        data=Path("unused"),
        log_cleanup_policy="compact",
        log_cleaner_min_cleanable_ratio=0.2,
        log_cleaner_delete_retention_ms=3,
    )
    own = {"min.compaction.lag.ms": "1", "max.compaction.lag.ms": "2"}
    assert policy(broker, own).compaction == (1, 2, 0.2, 3)
    assert policy(broker, {"cleanup.policy": "delete"}).compaction is None
    assert policy(broker, {SOURCE: "redis://host:1/0?stream=s"}).compaction is None
    assert policy(CONFIG, {}).compaction is None
    default = policy(CONFIG, COMPACT).compaction
    assert default == (0, (1 << 63) - 1, 0.5, 86_400_000)


def test_where_a_value_comes_from() -> None:
    broker = BrokerConfig(data=Path("unused"), message_max_bytes=500, log_retention_ms=7)
    shown = {c.name: c for c in topic_configs.effective(broker, {"retention.bytes": "9"})}
    assert [c.name for c in shown.values()] == sorted(TOPIC_CONFIGS)
    assert shown["retention.bytes"][1:] == ("9", 1)
    assert shown["max.message.bytes"][1:] == ("500", 4)
    assert shown["retention.ms"][1:] == ("7", 4)
    assert shown["segment.ms"][1:] == ("604800000", 5)
    assert shown["message.timestamp.type"][1:] == ("CreateTime", 5)


def test_what_configs_mean() -> None:
    forever = BrokerConfig(data=Path("unused"), log_retention_hours=-1)
    assert policy(forever, {}).retention_ms == -1
    assert policy(CONFIG, {}).retention_ms == -1
    both = policy(CONFIG, {"message.timestamp.difference.max.ms": "5"})
    assert (both.before_max_ms, both.after_max_ms) == (5, 5)
    one = policy(
        CONFIG,
        {"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "9"},
    )
    assert (one.before_max_ms, one.after_max_ms) == (5, 9)


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_mirrored_topic_may_name_a_codec(codec: str) -> None:
    assert topic_configs.check({"compression.type": codec}) == {"compression.type": codec}


@pytest.mark.parametrize(
    ("cleanup", "retention"),
    [("delete", (5, 6)), ("compact", (-1, -1)), ("compact,delete", (5, 6))],
)
def test_only_delete_deletes(cleanup: str, retention: tuple[int, int]) -> None:
    limits = {"retention.ms": "5", "retention.bytes": "6"}
    configs = topic_configs.check({"cleanup.policy": cleanup, **limits})
    found = policy(CONFIG, configs)
    assert (found.retention_ms, found.retention_bytes) == retention


def entries(configs: dict[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name, value) for name, value in configs.items()]


async def test_create_with_configs_and_restart() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:

        async def create(name: str, *, validate_only: bool, **configs: str) -> CreateTopicResp:
            dotted = {key.replace("_", "."): value for key, value in configs.items()}
            op = CreateTopic(name, 1, validate_only, entries(dotted))
            return await topics.create(state, context(), op)

        bad = await create("t", validate_only=False, cleanup_policy="keep")
        assert bad.error_code == ErrorCode.INVALID_CONFIG
        assert "cleanup.policy" in bad.error_message
        tried = await create("t", validate_only=True, max_message_bytes="70")
        made = await create("t", validate_only=False, max_message_bytes="70")
        assert tried.configs == made.configs
        (limit,) = [c for c in made.configs or [] if c.name == "max.message.bytes"]
        assert (limit.value, limit.source) == ("70", 1)
    async with running_state(disk.copy()) as state:
        topic = state.registry.by_name(ORG, "t")
        assert topic is not None
        assert topic.configs == {"max.message.bytes": "70"}
        ops = ProduceOps([ProduceOp("t", 0, batch_of(b"x" * 20))])
        (answer,) = (await produce.handle(state, context(), ops)).partitions
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "70" in answer.error_message


async def test_log_append_time() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(
            ORG, "t", 1, {"message.timestamp.type": "LogAppendTime"}
        )
        before = clock.time_ns() // 1_000_000
        first = ProduceOp("t", 0, batch_of(b"a", b"b", producer=(1, 0, 0)))
        answers = (await produce.handle(state, context(), ProduceOps([first]))).partitions
        answers += (await produce.handle(state, context(), ProduceOps([first]))).partitions
        now = answers[0].log_append_time
        assert before <= now <= clock.time_ns() // 1_000_000
        assert [a.log_append_time for a in answers] == [now, now], "a repeat has the first's time"
        (batch,) = await state.log.reader.read(
            state.log.partitions.get(topic.partition_id(0)), 0, 1_000, at_least_one=True
        )
        header = read_header(batch)
        assert header.attributes & LOG_APPEND_TIME
        assert header.max_timestamp == now
        assert header.crc == crc32c(batch[21:])
        assert [record.value for record in iter_records(batch)] == [b"a", b"b"]


async def test_timestamps_too_far_away() -> None:
    now = clock.time_ns() // 1_000_000
    configs = {
        "message.timestamp.before.max.ms": "100000",
        "message.timestamp.after.max.ms": "200000",
    }
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1, configs)

        async def send(*timestamps: int) -> tuple[ErrorCode, str]:
            batch = build_batch([Record(0, at, None, b"", []) for at in timestamps])
            ops = ProduceOps([ProduceOp("t", 0, batch)])
            (answer,) = (await produce.handle(state, context(), ops)).partitions
            return ErrorCode(answer.error_code), answer.error_message

        assert (await send(now, now - 50_000, now + 100_000))[0] == ErrorCode.NONE
        code, message = await send(now, now - 150_000, now)
        assert (code, "before.max.ms" in message) == (ErrorCode.INVALID_TIMESTAMP, True)
        code, message = await send(now, now + 250_000, now)
        assert (code, "after.max.ms" in message) == (ErrorCode.INVALID_TIMESTAMP, True)
        assert (await send(-1))[0] == ErrorCode.NONE, "no timestamp at all"


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(HEAD)[0] + table())
