"""The doctor's findings from a gateway's report, and a consumer that cannot leave its group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest
from confluent_kafka import Consumer

from quafka.commands import consume
from quafka.commands.doctor import _bootstrap
from quafka_client.checks.brokers import by_broker
from quafka_client.checks.compaction import check_compaction
from quafka_client.checks.findings import Report
from quafka_client.checks.gateway import check_broker, check_clock
from quafka_client.checks.security import check_certificate, check_security
from quafka_client.connection import ClientConnection
from quafka_loop import clock, threads
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from quafka_proto.schema.quafka import (
    DescribeCompactionRequest,
    DescribeCompactionResponse,
    DescribeGatewayResponse,
    GatewayBroker,
    GatewayListener,
    GatewayServer,
    PartitionCompaction,
)
from tests.unit.deploy.fake_kafka import HOST, SECONDS, Fake, connected, serving

NOW_MS = 1_700_000_000_000
GATEWAY = DescribeGatewayResponse(server_time_ms=NOW_MS, version="1.0")
FINE: dict[str, Any] = {
    "address": "b:1", "connected": True, "answered": True, "version": "1.0", "time_ms": NOW_MS,
    "op_us": 900, "rtt_us": 300, "datagram_bytes": 60_000, "packets_sent": 9,
}  # fmt: skip
TRANSACTIONS = {"open_transactions": 3, "oldest_transaction_ms": 70_000}


def redis(**more: str) -> GatewayServer:
    return GatewayServer(name="redis://r:1/0", topics=2, **more)


SNAPSHOTS = {"snapshot_interval_ms": 60_000, "snapshot_age_ms": 1_000}


@pytest.mark.parametrize(
    ("skew", "doubt", "status", "said"),
    [
        (0.0, 0.01, "ok", "differs by at most 10 ms"),
        (0.9, 0.01, "ok", "differs by at most 900 ms"),
        (3.0, 0.01, "warn", "3.0 s ahead"),
        (-3.0, 0.01, "warn", "3.0 s behind"),
        (3.0, 4.0, "ok", "differs by at most 4000 ms"),
        (-400.0, 0.01, "fail", "400.0 s behind: timestamps, retention and lag"),
    ],
)
def test_clocks(skew: float, doubt: float, status: str, said: str) -> None:
    report = Report()
    check_clock(report, "broker", round(NOW_MS + skew * 1_000), NOW_MS / 1_000, doubt)
    (finding,) = report.findings
    assert finding.status == status
    assert said in finding.message
    assert (finding.fix is None) is (status == "ok")


@pytest.mark.parametrize(
    ("change", "check", "status", "said"),
    [
        ({}, "mesh", "ok", "round trip 0.3 ms, op 0.9 ms, datagrams of 60000 bytes"),
        (
            {"connected": False, "away_ms": 7_000},
            "mesh",
            "fail",
            "no connection to the broker at b:1 for 7 s",
        ),
        (
            {"connected": False, "away_ms": 7_000, "problem": "too many connections: …"},
            "mesh",
            "fail",
            "the broker at b:1 refuses connections of the gateway: too many connections",
        ),
        ({"answered": False}, "mesh", "fail", "does not answer"),
        ({"datagram_bytes": 1_200}, "mesh", "warn", "only small datagrams"),
        ({"problem": "no space left"}, "broker", "fail", "no space left"),
        ({"version": "0.9"}, "version", "warn", "has version 0.9, the gateway 1.0"),
        ({"time_ms": NOW_MS + 60_000}, "clock", "warn", "60.0 s ahead"),
        (SNAPSHOTS | {"snapshot_age_ms": 119_000}, "snapshots", "ok", "119 s old, the interval 60"),
        (SNAPSHOTS | {"snapshot_age_ms": 121_000}, "snapshots", "warn", "121 s old, the interval"),
        (SNAPSHOTS | {"snapshot_problem": "no bucket"}, "snapshots", "warn", "no bucket"),
        (TRANSACTIONS, "transactions", "ok", "3 open transactions at b:1, the oldest for 70 s"),
        (
            TRANSACTIONS | {"overdue_transaction_ms": 9_000},
            "transactions",
            "warn",
            "has passed its timeout by 9 s",
        ),
        (
            TRANSACTIONS | {"unfinished_transactions": 2, "unfinished_transaction_ms": 9_000},
            "transactions",
            "warn",
            "2 that have ended here are still open at another broker after 9 s",
        ),
        (
            {"servers": [redis(detail="Redis 7, master")]},
            "redis",
            "ok",
            "Redis 7, master; 2 topics",
        ),
        ({"servers": [redis(detail="Redis 7, slave")]}, "redis", "warn", "and refuses records"),
        ({"servers": [redis(problem="out of memory")]}, "redis", "warn", "out of memory"),
        (
            {"servers": [redis(kind="kafka", detail="3 partitions in use")]},
            "kafka folders",
            "ok",
            "with 2 topics at b:1: 3 partitions in use",
        ),
        (
            {"servers": [redis(kind="kafka", problem="partition t-1: gone")]},
            "kafka folders",
            "warn",
            "partition t-1: gone",
        ),
    ],
)
def test_brokers(change: dict[str, Any], check: str, status: str, said: str) -> None:
    report = Report()
    check_broker(report, GatewayBroker(**(FINE | change)), GATEWAY)
    finding = next(each for each in report.findings if each.check == check and said in each.message)
    assert finding.status == status
    others = [each for each in report.findings if each is not finding]
    assert {each.status for each in others} <= {"ok"}


def shards(numbers: Iterable[int], **change: Any) -> list[GatewayBroker]:
    """A broker as a gateway reports it: once for each of its shards."""
    return [GatewayBroker(**(FINE | change), shard=number) for number in numbers]


def test_a_broker_is_reported_once_with_its_shards() -> None:
    reported = [*shards([0, 1, 2, 7]), *shards([3], address="c:1"), *shards([4, 6], address="d:1")]
    found = [each.address for each in by_broker(reported)]
    assert found == ["b:1 (shards 0-2, 7)", "c:1 (shard 3)", "d:1 (shards 4, 6)"]
    report = Report()
    for broker in by_broker(shards(range(4))):
        check_broker(report, broker, GATEWAY)
    assert [each.check for each in report.findings] == ["mesh", "clock"]


def test_the_only_shard_of_a_cluster_needs_no_number() -> None:
    assert [each.address for each in by_broker(shards([0]))] == ["b:1"]
    assert [each.address for each in by_broker(shards([-1]))] == ["b:1"]


def test_what_differs_between_shards_is_not_hidden() -> None:
    reported = [
        *shards([0, 1], open_transactions=2, oldest_transaction_ms=5_000, op_us=700),
        *shards([2], problem="no space left", overdue_transaction_ms=9, open_transactions=1),
        *shards([3], connected=False, answered=False, away_ms=3_000),
        *shards([4], op_us=200, time_ms=NOW_MS + 5, open_transactions=1,
                oldest_transaction_ms=80_000, servers=[redis(detail="Redis 7, master")]),
        *shards([5], servers=[redis(detail="Redis 7, master"), redis(problem="away")]),
    ]  # fmt: skip
    healthy, full, away = by_broker(reported)
    assert healthy.address == "b:1 (shards 0, 1, 4, 5)"
    assert (healthy.open_transactions, healthy.oldest_transaction_ms) == (5, 80_000)
    assert (healthy.op_us, healthy.time_ms) == (200, NOW_MS + 5), "the quickest answer"
    assert [(each.topics, each.problem) for each in healthy.servers] == [(4, ""), (2, "away")]
    assert (full.address, full.problem) == ("b:1 (shard 2)", "no space left")
    assert full.overdue_transaction_ms == 9
    assert (away.address, away.connected, away.away_ms) == ("b:1 (shard 3)", False, 3_000)


@pytest.mark.parametrize(
    ("told", "cluster_id", "said"),
    [
        (("nowhere.invalid", 9092), "c", "not work: the name 'nowhere.invalid' cannot be resolved"),
        ((HOST, 1), "c", "does not work: nothing listens on"),
        (None, "other", "leads to another cluster (other, not c)"),
        (None, "c", ""),
    ],
)
async def test_advertised_addresses(
    told: tuple[str, int] | None, cluster_id: str, said: str
) -> None:
    fake, other = Fake({3: (0, 9)}), Fake({3: (0, 9)})
    async with serving(fake), serving(other):
        host, port = told or (HOST, other.port)
        advertised = MetadataResponseBroker(node_id=0, host=host, port=port)
        fake.answers[3] = MetadataResponse(cluster_id="c", brokers=[advertised])
        other.answers[3] = MetadataResponse(cluster_id=cluster_id)
        report = Report()
        usable = await _bootstrap(report, HOST, fake.port, SECONDS)
    assert usable is report.healthy is (not said)
    assert said in report.findings[-1].message
    assert ("advertised.listener" in (report.findings[-1].fix or "")) is bool(said)


async def test_a_cluster_without_an_id_or_brokers() -> None:
    fake = Fake({3: (0, 9)})
    fake.answers[3] = MetadataResponse()
    report = Report()
    async with serving(fake):
        assert not await _bootstrap(report, HOST, fake.port, SECONDS)
    failed = [each.check for each in report.findings if each.status == "fail"]
    assert failed == ["cluster", "advertised"]


def test_a_consumer_does_not_wait_for_a_broker_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    over = threads.Event()

    class Stuck:
        def close(self) -> None:
            over.wait(20)

    monkeypatch.setattr(consume, "_LEAVE_SECONDS", 0.05)
    consume._leave(cast(Consumer, Stuck()))
    over.set()
    assert "may not have been committed" in capsys.readouterr().err


# --- security ---------------------------------------------------------------------------------


def listener(name: str, **more: bool) -> GatewayListener:
    return GatewayListener(name=name, protocol=name, address=f"0.0.0.0:{len(name)}", **more)


@pytest.mark.parametrize(
    ("listeners", "more", "found"),
    [
        ([listener("SASL_SSL")], {"authorizer": True, "super_users": 1}, {"security": "ok"}),
        ([listener("PLAINTEXT", open=True, loopback=True)], {}, {}),
        ([listener("PLAINTEXT", open=True)], {}, {"listeners": "warn"}),
        ([listener("SSL")], {}, {"authorizer": "warn", "security": "ok"}),
        ([listener("SSL")], {"authorizer": True}, {"authorizer": "warn", "security": "ok"}),
        (
            [listener("SSL"), listener("PLAINTEXT", open=True)],
            {"authorizer": True, "super_users": 2, "security_problem": "it is away"},
            {"listeners": "warn", "users": "warn"},
        ),
    ],
)
def test_security(
    listeners: list[GatewayListener], more: dict[str, Any], found: dict[str, str]
) -> None:
    report = Report()
    check_security(report, DescribeGatewayResponse(listeners=listeners, **more))
    assert {each.check: each.status for each in report.findings} == found
    assert all(bool(each.fix) == (each.status != "ok") for each in report.findings)


@pytest.mark.parametrize(
    ("days", "status"), [(None, None), (300, "ok"), (13, "warn"), (-1, "warn")]
)
def test_certificates(days: float | None, status: str | None) -> None:
    connection, report = ClientConnection(HOST, 1, SECONDS), Report()
    connection.certificate_ends = None if days is None else clock.time() + days * 86_400
    check_certificate(report, connection)
    assert [each.status for each in report.findings] == ([status] if status else [])


@pytest.mark.parametrize(
    ("due", "hours", "found"),
    [
        (None, 0.0, []),  # the topics are not compacted
        (False, 9.0, [("ok", "2 compacted topics, none of them late")]),
        (True, 1.9, [("ok", "2 compacted topics, none of them late")]),
        (True, 2.5, [("warn", "due, and not compacted for 2.5 hours: a, b")]),
        (True, None, [("ok", "2 compacted topics, none of them late")]),
    ],
)
async def test_compaction(
    due: bool | None, hours: float | None, found: list[tuple[str, str]]
) -> None:
    now = NOW_MS / 1_000
    last_ms = -1 if hours is None else round((now - hours * 3_600) * 1_000)
    fake, report = Fake({3: (12, 12), DescribeCompactionRequest.api_key: (0, 0)}), Report()
    topics = [MetadataResponseTopic(name="b"), MetadataResponseTopic(name="a")]
    denied = MetadataResponseTopic(name="c", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    fake.answers[3] = MetadataResponse(topics=[*topics, denied])
    fake.answers[DescribeCompactionRequest.api_key] = DescribeCompactionResponse(
        partitions=[] if due is None else [PartitionCompaction(due=due, last_ms=last_ms)]
    )
    async with connected(fake) as connection:
        await check_compaction(report, connection, now)
    assert [(each.status, each.message) for each in report.findings] == found
    assert len(fake.asked) == 4  # versions, topics, and each topic that may be described
