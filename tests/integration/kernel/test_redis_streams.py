"""Topics over a real Redis server, through the broker's ops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from quafka_broker.ops import configs, partitions, produce, topics
from quafka_broker.sources.redis.bounds import StreamBounds
from quafka_broker.sources.redis.entry_ids import EntryId
from quafka_broker.sources.redis.partition import RedisPartition
from quafka_loop import clock
from quafka_mesh_ops.ops.admin import AlterTopicConfigs, CreatePartitions
from quafka_mesh_ops.ops.records import (
    ProduceOp,
    ProduceOps,
)
from quafka_mesh_ops.ops.topics import DeleteTopic
from quafka_proto.config_kinds import ConfigOperation
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.schema.configs import IncrementalAlterableConfig
from quafka_proto.schema.topics import CreatableTopicConfig
from tests.support.redis_server import RedisServer, load
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.redis.tools import (
    create,
    end_of,
    get,
    offset_for,
    put,
    read_all,
    state_with,
)
from tests.unit.broker.tools import ORG, context

_MIB = 1 << 20

pytestmark = pytest.mark.needs("redis-server")
_END, _START = -1, -2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with server.client() as connected:
        connected.flushall()
        connected.config_set("maxmemory", 0)
        yield connected


def offset_of(entry_id: str) -> int:
    ms, sequence = entry_id.split("-")
    return int(ms) << 10 | int(sequence)


async def test_entries_are_read_as_records(server: RedisServer, client: Any) -> None:
    ids = [
        client.xadd("s", {"key": "k", "value": "v", "header.a": "b", "timestamp": "77"}).decode(),
        client.xadd("s", {"temperature": "21", "room": "7"}).decode(),
    ]
    async with state_with(server.address) as state:
        assert (await create(state, server.source("s"))).error_code == 0
        first, second = await read_all(state)
        assert first == Record(offset_of(ids[0]), 77, b"k", b"v", [("a", b"b")])
        assert second.value == b'{"temperature":"21","room":"7"}'
        assert second.timestamp == int(ids[1].split("-")[0])
        end = offset_of(ids[1]) + 1
        assert await offset_for(state, _END) == (end, -1)
        assert await offset_for(state, _START) == (0, -1)
        assert await offset_for(state, 0) == (offset_of(ids[0]), first.offset >> 10)
        assert await offset_for(state, -3) == (offset_of(ids[1]), second.offset >> 10)
        assert await offset_for(state, 1 << 42) == (-1, -1)
        assert (await get(state, end + 1, 5_000)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_fetch_waits_for_the_next_entry(server: RedisServer, client: Any) -> None:
    async with state_with(server.address) as state:
        await create(state, server.source("s:{p}"), count=3)
        await create(state, server.source("other"), "u")
        waiting = [asyncio.create_task(get(state, 0, 20_000, number)) for number in range(3)]
        elsewhere = asyncio.create_task(get(state, 0, 20_000, name="u"))
        await asyncio.sleep(0.2)
        commands = [each["cmd"] for each in client.client_list()]
        assert commands.count("xread") == 1  # blocked, for all partitions of both topics
        for number in (2, 0, 1):
            await asyncio.sleep(0.05)
            assert not waiting[number].done()
            began = clock.perf_counter()
            client.xadd(f"s:{number}", {"value": b"%d" % number})
            answer = await asyncio.wait_for(waiting[number], 30)
            assert clock.perf_counter() - began < 10
            (batch,) = answer.records
            assert [record.value for record in iter_records(batch)] == [b"%d" % number]
        client.xadd("other", {"value": "x"})
        assert (await asyncio.wait_for(elsewhere, 30)).records
        assert len(state.redis.servers) == 1


async def test_records_that_are_produced_are_entries(server: RedisServer, client: Any) -> None:
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        waiting = asyncio.create_task(get(state, 0, 20_000))
        await asyncio.sleep(0.05)
        batch = bytes(
            build_batch(
                [Record(0, 5, b"k", b"v", [("h", None)]), Record(0, 6, None, None, [])], codec=1
            )
        )
        op = ProduceOps([ProduceOp("t", 0, batch)])
        (answer,) = (await produce.handle(state, context(), op)).partitions
        assert answer.error_code == 0
        assert answer.high_watermark == answer.base_offset + 2
        entries = client.xrange("s")
        assert [fields for _, fields in entries] == [
            {b"key": b"k", b"value": b"v", b"nullheader.h": b"", b"timestamp": b"5"},
            {b"timestamp": b"6"},
        ]
        assert [offset_of(each.decode()) for each, _ in entries] == [
            answer.base_offset, answer.base_offset + 1,
        ]  # fmt: skip
        await asyncio.wait_for(waiting, 30)
        first, second = await read_all(state)
        assert (first.key, first.value, first.headers) == (b"k", b"v", [("h", None)])
        assert (second.key, second.value, second.timestamp) == (None, None, 6)


async def test_many_records_take_consecutive_offsets(server: RedisServer, client: Any) -> None:
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        values = [b"%d" % n for n in range(3_000)]  # more than a millisecond has offsets
        first = await put(state, *values)
        second = await put(state, *values)
        assert second.base_offset >= first.base_offset + 3_000
        records = await read_all(state)
        assert [record.value for record in records] == values * 2
        assert records[2_999].offset == first.base_offset + 2_999
        assert [await put(state, b"x")][0].error_code == 0


async def test_a_repeated_batch_is_stored_once(server: RedisServer, client: Any) -> None:
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        first = await put(state, b"a", b"b", producer=(7, 0, 0))
        second = await put(state, b"c", producer=(7, 0, 2))
        for producer, values, answer in (
            ((7, 0, 0), (b"a", b"b"), first),
            ((7, 0, 2), (b"c",), second),
        ):
            again = await put(state, *values, producer=producer)
            assert (again.error_code, again.base_offset) == (0, answer.base_offset)
        assert client.xlen("s") == 3
        gap = await put(state, b"x", producer=(7, 0, 9))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        unknown = await put(state, b"x", producer=(8, 0, 9))
        assert unknown.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
        assert (await put(state, b"d", producer=(7, 1, 0))).error_code == 0
        old = await put(state, b"x", producer=(7, 0, 3))
        assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        pending = [put(state, b"%d" % n, producer=(9, 0, n)) for n in range(20)]
        answers = await asyncio.gather(*pending, put(state, b"19", producer=(9, 0, 19)))
        assert {each.error_code for each in answers} == {0}
        assert [fields[b"value"] for _, fields in client.xrange("s")][4:] == [
            b"%d" % n for n in range(20)
        ]
    async with state_with(server.address) as state:  # another start, the same Redis
        await create(state, server.source("s"))
        assert client.xlen("s") == 24


async def test_trimmed_entries_are_out_of_range(server: RedisServer, client: Any) -> None:
    ids = load(client, "s", [b"%d" % n for n in range(1_000)], 100)
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        answer = await get(state, 0, 5_000, size=1_000)
        assert answer.error_code == 0
        middle = end_of(answer.records[-1])
        client.xtrim("s", maxlen=500, approximate=False)
        answer = await get(state, middle, 5_000)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert answer.log_start_offset == offset_of(ids[500])
        assert await offset_for(state, _START) == (offset_of(ids[500]), -1)
        records = await read_all(state, offset_of(ids[500]))
        assert [record.value for record in records] == [b"%d" % n for n in range(500, 1_000)]


async def test_a_waiting_consumer_outlives_the_trimming_of_its_past(
    server: RedisServer, client: Any
) -> None:
    load(client, "s", [b"a", b"b"])
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        end, _ = await offset_for(state, _END)
        waiting = asyncio.create_task(get(state, end, 20_000))
        await asyncio.sleep(0.05)
        client.xadd("s", {"value": "c"}, maxlen=1, approximate=False)
        answer = await asyncio.wait_for(waiting, 30)
        assert answer.error_code == 0
        assert [record.value for record in iter_records(answer.records[0])] == [b"c"]


async def test_a_deleted_last_entry_does_not_hold_a_consumer(
    server: RedisServer, client: Any
) -> None:
    ids = load(client, "s", [b"a", b"b", b"c"])
    client.xdel("s", ids[2])
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        records = await read_all(state, offset_of(ids[0]))
        assert [record.value for record in records] == [b"a", b"b"]
        client.delete("s")
        answer = await get(state, offset_of(ids[0]), 5_000)
        assert answer.high_watermark == offset_of(ids[2]) + 1
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        waiting = asyncio.create_task(get(state, answer.high_watermark, 20_000))
        await asyncio.sleep(0.05)
        client.xadd("s", {"value": "anew"})
        answer = await asyncio.wait_for(waiting, 30)
        assert [record.value for record in iter_records(answer.records[0])] == [b"anew"]


async def test_an_empty_fetch_waits(server: RedisServer, client: Any) -> None:
    load(client, "s", [b"a"])
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        end, _ = await offset_for(state, _END)
        began = clock.perf_counter()
        answer = await get(state, end, 300)
        assert not answer.records
        assert 0.25 < clock.perf_counter() - began < 5


async def test_another_type_at_the_key_costs_that_topic_errors(
    server: RedisServer, client: Any
) -> None:
    client.set("s:0", "a string")
    load(client, "s:1", [b"a"])
    async with state_with(server.address) as state:
        await create(state, server.source("s:{p}"), count=2)
        began = clock.perf_counter()
        assert (await get(state, 0, 300)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert clock.perf_counter() - began > 0.25  # clients repeat it no faster
        assert (await put(state, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [record.value for record in await read_all(state, number=1)] == [b"a"]
        client.delete("s:0")
        assert (await put(state, b"x")).error_code == 0


async def test_a_full_redis_refuses_records_and_serves_them(
    server: RedisServer, client: Any
) -> None:
    load(client, "s", [b"a"])
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        client.config_set("maxmemory", 1)
        answer = await put(state, b"x", producer=(7, 0, 0))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "memory" in answer.error_message
        later = await put(state, b"y", producer=(7, 0, 1))
        assert later.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [record.value for record in await read_all(state)] == [b"a"]
        client.config_set("maxmemory", 0)
        assert (await put(state, b"x", producer=(7, 0, 0))).error_code == 0
        assert (await put(state, b"y", producer=(7, 0, 1))).error_code == 0


async def test_hostile_entries(server: RedisServer, client: Any) -> None:
    big, junk = b"x" * (6 << 20), bytes(range(256)) * 40
    client.xadd("s", {b"value": big})
    client.xadd("s", {b"\xff\0%d" % n: junk[n:] for n in range(2_000)})
    client.xadd("s", {b"": b""})
    client.xadd("s", {b"header.": b"", b"key": b""})
    client.execute_command("XADD", "s", "*", *([b"value", b"again"] * 3))
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        answer = await get(state, 0, 5_000, size=1_000)
        (whole,) = iter_records(answer.records[0])
        assert whole.value == big
        records = await read_all(state)
        assert len(records) == 5
        assert records[2].value == b'{"":""}'
        assert (records[3].key, records[3].headers) == (b"", [("", b"")])
        assert records[4].headers == [("value", b"again")] * 2


async def test_ids_without_an_offset_end_the_topic_with_an_error(
    server: RedisServer, client: Any
) -> None:
    client.xadd("s", {"value": "a"}, id="5-1023")
    client.xadd("s", {"value": "b"}, id="5-1024")
    client.xadd("s", {"value": "c"}, id="6-0")
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        answer = await get(state, 0, 5_000)
        assert [record.value for record in iter_records(answer.records[0])] == [b"a"]
        answer = await get(state, offset_of("5-1023") + 1, 5_000)
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
        await create(state, server.source("s", "bits=12"), "u")
        answer = await get(state, 0, 5_000, name="u")
        assert [record.value for record in iter_records(answer.records[0])] == [b"a", b"b", b"c"]


async def test_what_a_topic_may_name(server: RedisServer) -> None:
    async with state_with() as state:
        refused = await create(state, server.source("s"))
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "sources.redis.allowed" in refused.error_message
    async with state_with(f"2@{server.address}") as state:
        assert (await create(state, server.source("s"))).error_code == ErrorCode.INVALID_CONFIG
    async with state_with(server.address) as state:
        compacted = CreatableTopicConfig("cleanup.policy", "compact")
        for refused in (
            await create(state, f"redis://user:hunter2@{server.address}/0?stream=s"),
            await create(state, server.source("s", "bits=1")),
            await create(state, server.source("s"), "t", 1, compacted),
        ):
            assert refused.error_code == ErrorCode.INVALID_CONFIG
            assert "hunter2" not in refused.error_message
        assert (await create(state, server.source("s"), count=2)).error_code
        assert (await create(state, server.source("s"), "plain")).error_code == 0
        grow = CreatePartitions("plain", 2)
        assert (await partitions.create(state, context(), grow)).error_code
        assert (await create(state, server.source("s:{p}"), "several")).error_code == 0
        grow = CreatePartitions("several", 2)
        assert (await partitions.create(state, context(), grow)).error_code == 0
        for name, value in (
            ("quafka.source", server.source("other")), ("cleanup.policy", "compact"),
        ):  # fmt: skip
            change = [IncrementalAlterableConfig(name, ConfigOperation.SET, value)]
            altered = await configs.alter(state, context(), AlterTopicConfigs("plain", change))
            assert altered.error_code == ErrorCode.INVALID_CONFIG, name
        kept = await configs.alter(state, context(), AlterTopicConfigs("plain", [], replace=True))
        assert kept.error_code == 0
        topic = state.registry.by_name(ORG, "plain")
        assert topic is not None
        assert topic.source == "redis"
        assert (await topics.delete(state, context(), DeleteTopic("plain"))).error_code == 0


async def test_topics_survive_a_restart_of_the_broker(server: RedisServer, client: Any) -> None:
    load(client, "s", [b"a"])
    disk = MemoryDisk()
    async with state_with(server.address, disk=disk) as state:
        await create(state, server.source("s"))
        assert len(await read_all(state)) == 1
    async with state_with(server.address, disk=disk) as state:
        assert len(await read_all(state)) == 1
    async with state_with(disk=disk) as state:  # the setting no longer allows the server
        assert (await get(state, 0, 100)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_lag_is_counted_in_entries(server: RedisServer, client: Any) -> None:
    load(client, "s", [b"%d" % n for n in range(100)])
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        topic = state.registry.by_name(ORG, "t")
        assert topic is not None
        partition = state.sources.partition(topic, 0)
        assert isinstance(partition, RedisPartition)
        end, _ = await offset_for(state, _END)
        assert await partition.records_from(end) == 0
        assert await partition.records_from(0) == 100
        records = await read_all(state)
        assert await partition.records_from(records[40].offset + 1) == 59
        load(client, "s", [b"x"] * 10)
        await offset_for(state, _END)
        await asyncio.sleep(0.06)
        await offset_for(state, _END)
        assert await partition.records_from(end) == 10


async def test_transactions_are_refused(server: RedisServer, client: Any) -> None:
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        batch = build_batch(
            [Record(0, 1, None, b"x", [])], transactional=True, producer_id=7, producer_epoch=0,
            base_sequence=0,
        )  # fmt: skip
        op = ProduceOps([ProduceOp("t", 0, bytes(batch))])
        (answer,) = (await produce.handle(state, context(), op)).partitions
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
        assert client.xlen("s") == 0


async def test_answers_that_were_overtaken_change_nothing(server: RedisServer, client: Any) -> None:
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        topic = state.registry.by_name(ORG, "t")
        assert topic is not None
        partition = state.redis.partition(topic, 0)
        await offset_for(state, _END)
        older = [StreamBounds(None, EntryId(0, 0), 0, 0, EntryId(0, 0))]
        answer = await put(state, b"0")
        for n in range(2, 5):
            answer = await put(state, b"%d" % n)
            older.append(StreamBounds(EntryId(1, 0), partition.last, n, n, EntryId(0, 0)))
        for stream in older:
            partition.learn(stream, 0)
            assert partition.high_watermark == answer.base_offset + 1
        assert [record.value for record in await read_all(state)] == [b"0", b"2", b"3", b"4"]


async def test_a_stream_with_many_writers_and_readers_never_goes_back(
    server: RedisServer, client: Any
) -> None:
    async with state_with(server.address) as state:
        await create(state, server.source("s"))
        highest, stop = 0, asyncio.Event()

        async def follow() -> list[bytes | None]:
            found: list[bytes | None] = []
            offset = 0
            while len(found) < 600:
                answer = await get(state, offset, 1_000)
                assert answer.error_code == 0
                for batch in answer.records:
                    found += [record.value for record in iter_records(batch)]
                    offset = end_of(batch)
            return found

        async def look() -> None:
            nonlocal highest
            while not stop.is_set():
                end, _ = await offset_for(state, _END)
                assert end >= highest
                highest = end
                await asyncio.sleep(0.002)

        readers = [asyncio.create_task(follow()) for _ in range(3)]
        looking = asyncio.create_task(look())
        for n in range(300):
            await put(state, b"%d" % n)
            client.xadd("s", {"value": b"%d" % n})
        read = await asyncio.wait_for(asyncio.gather(*readers), 20)
        stop.set()
        await looking
        values = [fields[b"value"] for _, fields in client.xrange("s")]
        assert read == [values] * 3


async def test_entries_larger_than_an_answer_may_be(tmp_path_factory: Any) -> None:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server, server.client() as client:
        for n in range(300):
            client.xadd("s", {"value": b"%d" % n})
        for n in range(12):
            client.xadd("s", {"value": b"%d" % n + b"x" * 600_000})
        async with state_with(server.address, answer_bytes=_MIB) as state:
            await create(state, server.source("s"))
            assert len(await read_all(state)) == 312  # one at a time where they are large
            end = (await get(state, 0)).high_watermark
            waiting = asyncio.create_task(get(state, end, 20_000))
            await asyncio.sleep(0.1)
            client.xadd("s", {"value": b"*2000000000\r\n"})
            answer = await asyncio.wait_for(waiting, 30)
            assert answer.records
            waiting = asyncio.create_task(get(state, end_of(answer.records[-1]), 20_000))
            await asyncio.sleep(0.1)
            client.xadd("s", {"value": b"x" * 2 * _MIB})
            answer = await asyncio.wait_for(waiting, 30)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await get(state, 0)).records  # the others are read as before
            assert state.redis.servers[0][1].is_up
