"""Whole traces, as a real OTLP receiver gets them from real processes: every span, its parent and
its kind; what links them; and that no span is left without a parent."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from quafka_proto.compression import Codec
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_telemetry import semconv
from tests.support.cluster import Cluster
from tests.support.kafka_calls import (
    create_topic,
    fetch,
    fetch_request,
    metadata,
    produce,
    produce_batch,
    produce_request,
    values,
)
from tests.support.raw_client import RawClient
from tests.support.share_calls import ACCEPT, ShareMember, acquired
from tests.support.spans import Collector, SeenSpan, Trace, collector
from tests.support.transactional import TV2, RawProducer

PRODUCE = """
    gateway.kafka.connect server
      gateway.kafka.request internal
        rafka.gateway.kafka.produce internal
          mesh.kafkaop.sent client
            mesh.kafkaop.handle server
              broker.produce.store internal
                broker.wal.commit internal
                  broker.wal.write internal
                  broker.wal.fsync internal
                kafkaop.ack internal
                  kafkaop.ack_received internal
        gateway.kafka.encode internal
      gateway.kafka.write internal
"""
READ = """
    gateway.kafka.connect server
      gateway.kafka.request internal
        rafka.gateway.kafka.fetch internal
          gateway.fetch.cache internal
          mesh.kafkaop.sent client
            mesh.kafkaop.handle server
              rafka.broker.fetch.read internal
                broker.wal.index internal
                broker.wal.read internal
        gateway.kafka.encode internal
      gateway.kafka.write internal
"""
HOT = """
    gateway.kafka.connect server
      gateway.kafka.request internal
        rafka.gateway.kafka.fetch internal
          gateway.fetch.cache internal
        gateway.kafka.encode internal
      gateway.kafka.write internal
"""
PARKED = """
    gateway.kafka.connect server
      gateway.kafka.request internal
        rafka.gateway.kafka.fetch internal
          gateway.fetch.cache internal
          mesh.kafkaop.sent client
            mesh.kafkaop.handle server
              broker.fetch.park internal
              rafka.broker.fetch.read internal
        gateway.kafka.encode internal
      gateway.kafka.write internal
"""
REFUSED = """
    gateway.kafka.connect server
      gateway.kafka.request internal
        rafka.gateway.kafka.fetch internal
          gateway.fetch.cache internal
          mesh.kafkaop.sent client
            mesh.kafkaop.handle server
              rafka.broker.fetch.read internal
        gateway.kafka.encode internal
      gateway.kafka.write internal
"""
JOIN = """
    gateway.kafka.connect server
      gateway.kafka.request internal
        gateway.kafka.join_group internal
          mesh.kafkaop.sent client
            mesh.kafkaop.handle server
              broker.group.park internal
        gateway.kafka.encode internal
      gateway.kafka.write internal
"""
HEARTBEAT = """
    gateway.kafka.connect server
      gateway.kafka.request internal
        gateway.kafka.heartbeat internal
          mesh.kafkaop.sent client
            mesh.kafkaop.handle server
        gateway.kafka.encode internal
      gateway.kafka.write internal
"""
CREATE = """
    gateway.kafka.connect server
      gateway.kafka.request internal
        gateway.kafka.create_topics internal
          mesh.kafkaop.sent client
            mesh.kafkaop.handle server
              broker.wal.commit internal
        gateway.kafka.encode internal
      gateway.kafka.write internal
"""
TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS: list[tuple[str, bytes | None]] = [
    ("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-01".encode()),
    ("tracestate", b"vendor=7"),
]


class Traced(NamedTuple):
    """Two processes and who receives their spans."""

    cluster: Cluster
    collector: Collector

    def client(self, client_id: str) -> RawClient:
        return RawClient(self.cluster.address, client_id=client_id)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    delay = ("--group-initial-rebalance-delay-ms", "200")
    unbound = ("--trace-spans-per-second", "0")
    folder = tmp_path_factory.mktemp("traced")
    with (
        collector() as spans,
        Cluster(folder, delay, unbound, env=spans.env) as cluster,
    ):
        with RawClient(cluster.address) as client:  # the connection to the broker is there
            metadata(client, "first")
        yield Traced(cluster, spans)
    for trace in spans.traces():
        assert trace.orphans(semconv.CONNECT) == []
        for span in trace.spans:
            assert span.start <= span.end
            assert span.attributes.keys() <= semconv.ATTRIBUTES
            assert span.attributes[semconv.SYSTEM] == "kafka"


def test_a_produce(traced: Traced) -> None:
    with traced.client("produce") as client:
        metadata(client, "produced")
        produce(client, "produced", b"a", b"b")
    trace = traced.collector.wait_for_tree("produce", PRODUCE)
    stored = trace.named(semconv.STORE).attributes
    assert (stored[semconv.MESSAGE_COUNT], stored[semconv.BASE_OFFSET]) == (2, 0)
    fsync = trace.named(semconv.WAL_FSYNC)
    assert fsync.attributes[semconv.COMMIT_APPENDS] == 1
    assert fsync.start == trace.named(semconv.WAL_WRITE).end
    request = trace.named(semconv.REQUEST).attributes
    assert request[semconv.OPERATION] == "Produce"
    assert request[semconv.PARKED_MS] == 0
    assert request[semconv.OPERATION_TYPE] == "send"
    assert request[semconv.CLUSTER_ID]
    for name in (semconv.GATEWAY_PRODUCE, semconv.STORE):
        about = trace.named(name).attributes
        assert (about[semconv.DESTINATION], about[semconv.PARTITION_ID]) == ("produced", "0")
    assert carried(trace, semconv.GATEWAY_PRODUCE) == (0, 1)
    sent = trace.named(semconv.SENT).attributes
    host, port = traced.cluster.broker.ready["mesh"].rsplit(":", 1)
    assert (sent[semconv.PEER_ADDRESS], sent[semconv.PEER_PORT]) == (host, int(port))
    assert trace.named(semconv.CONNECT).attributes[semconv.SAMPLED_BY] == "ratio"


def carried(trace: Trace, name: str) -> tuple[object, object]:
    """The offsets of the first and the last record that a span names."""
    about = trace.named(name).attributes
    return about.get(semconv.BASE_OFFSET), about.get(semconv.LAST_OFFSET)


def test_spans_over_http_need_no_grpc(traced: Traced) -> None:
    for process in (traced.cluster.broker, traced.cluster.gateway):
        libraries = Path(f"/proc/{process.pid}/maps").read_text()
        assert "msgpack/_cmsgpack" in libraries
        assert "grpc/_cython" not in libraries


def written(traced: Traced, topic: str) -> Trace:
    """The trace of a produce to a new topic."""
    with traced.client(topic) as client:
        metadata(client, topic)
        produce(client, topic, b"a", b"b")
    return traced.collector.wait_for_tree(topic, PRODUCE)


def test_a_read_names_the_trace_that_wrote_what_it_returns(traced: Traced) -> None:
    writer = written(traced, "read")
    with traced.client("reader") as client:
        assert values(fetch(client, "read", 0)) == [b"a", b"b"]
    trace = traced.collector.wait_for_tree("reader", READ)
    assert trace.named(semconv.FETCH_READ).links == [writer.spans[0].trace_id]
    assert trace.named(semconv.GATEWAY_FETCH).links == [writer.spans[0].trace_id]
    assert carried(trace, semconv.GATEWAY_FETCH) == (0, 1)
    seen = trace.named(semconv.FETCH_READ).attributes
    assert (seen["fetch_offset"], seen["returned_count"], seen["high_watermark"]) == (0, 2, 2)
    org, topic_hash, partition = seen["virtual_topic"].split("-")
    assert (org, partition) == ("1", "0")
    assert 0 <= int(topic_hash) < 2**128
    assert trace.named(semconv.WAL_READ).attributes[semconv.FROM_DISK] is False
    assert seen[semconv.TOPIC_ID]
    for name in (semconv.GATEWAY_FETCH, semconv.FETCH_READ):
        about = trace.named(name).attributes
        assert (about[semconv.DESTINATION], about[semconv.PARTITION_ID]) == ("read", "0")


def test_a_fetch_by_id_has_the_name_of_its_topic(traced: Traced) -> None:
    written(traced, "by-id")
    with traced.client("id-reader") as client:
        (topic,) = metadata(client, "by-id").topics
        request = fetch_request("by-id", 0)
        request.topics[0].topic, request.topics[0].topic_id = "", topic.topic_id
        assert client.call(request, FetchResponse, 13).error_code == 0
    trace = traced.collector.wait_for_tree("id-reader", READ)
    expected = {
        semconv.DESTINATION: "by-id",
        semconv.TOPIC_ID: urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
        semconv.PARTITION_ID: "0",
    }
    for name in (semconv.GATEWAY_FETCH, semconv.FETCH_READ):
        about = trace.named(name).attributes
        assert {key: about.get(key) for key in expected} == expected


def test_a_produce_by_id_has_the_name_of_its_topic(traced: Traced) -> None:
    with traced.client("id-writer") as client:
        (topic,) = metadata(client, "written-by-id").topics
        request = produce_request("", b"a")
        request.topic_data[0].topic_id = topic.topic_id
        answer = client.call(request, ProduceResponse, 13)
        assert answer.responses[0].partition_responses[0].error_code == 0
    trace = traced.collector.wait_for_tree("id-writer", PRODUCE)
    for name in (semconv.GATEWAY_PRODUCE, semconv.STORE):
        assert destination(trace.named(name)) == ("written-by-id", topic.topic_id, "0")


def destination(span: SeenSpan) -> tuple[object, bytes, object]:
    """The topic's name and id, and the partition."""
    about = span.attributes
    topic_id = urlsafe_b64decode(about.get(semconv.TOPIC_ID, "") + "==")
    return about.get(semconv.DESTINATION), topic_id, about.get(semconv.PARTITION_ID)


def test_all_requests_of_a_share_session_name_their_partitions(traced: Traced) -> None:
    """Also the last one, of a session that has forgotten the partition."""
    with traced.client("share-member") as client:
        (topic,) = metadata(client, "shared").topics
        member = ShareMember(client, "share-team", topic.topic_id)
        assert member.fetch(0) == []
        produce(client, "shared", b"a", b"b")
        assert acquired(member.fetch()[0]) == [(0, 1, 1)]
        assert member.acknowledge({0: [(0, 0, [ACCEPT])]}) == [0]
        assert member.fetch(forget=0) == []
        assert member.fetch(acks={0: [(1, 1, [ACCEPT])]}, epoch=-1)
    named = ("shared", topic.topic_id, "0")
    last = traced.collector.wait_for(
        lambda trace: (
            semconv.SHARE_ACKNOWLEDGE in str(trace.spans)
            and any(span.name == semconv.GATEWAY_SHARE_FETCH for span in trace.spans)
        )
    )
    assert destination(last.named(semconv.GATEWAY_SHARE_FETCH)) == named
    shares = {semconv.SHARE_ACQUIRE, semconv.SHARE_ACKNOWLEDGE, semconv.GATEWAY_SHARE_ACKNOWLEDGE}
    seen = [s for trace in traced.collector.traces() for s in trace.spans if s.name in shares]
    assert {span.name for span in seen} == shares
    assert {destination(span) for span in seen} == {named}
    acquire = [span for span in seen if span.name == semconv.SHARE_ACQUIRE]
    assert [span.attributes[semconv.MESSAGE_COUNT] for span in acquire[:2]] == [0, 2]
    assert {span.attributes[semconv.GROUP] for span in acquire} == {"share-team"}
    fetches = [t for t in traced.collector.traces() if semconv.GATEWAY_SHARE_FETCH in str(t.spans)]
    assert (0, 1) in [carried(each, semconv.GATEWAY_SHARE_FETCH) for each in fetches]


def test_a_hot_fetch_stays_in_the_gateway_and_is_linked_all_the_same(traced: Traced) -> None:
    writer = written(traced, "hot")
    with traced.client("hot-reader") as client:
        for _ in range(100):  # the first ones bring the lease, and fill the cache under it
            fetch(client, "hot", 0)
    trace = traced.collector.wait_for_tree("hot-reader", HOT)
    assert trace.named(semconv.GATEWAY_FETCH).links == [writer.spans[0].trace_id]
    assert trace.named(semconv.CACHE).attributes[semconv.CACHE_HITS] == 1
    assert carried(trace, semconv.GATEWAY_FETCH) == (0, 1)


@pytest.mark.long
def test_parked_time_is_a_span_of_its_own_and_no_latency(traced: Traced) -> None:
    written(traced, "parked")
    with traced.client("parked-reader") as client:
        assert values(fetch(client, "parked", 2, max_wait_ms=400)) == []
    trace = traced.collector.wait_for_tree("parked-reader", PARKED)
    request = trace.named(semconv.REQUEST)
    assert trace.named(semconv.FETCH_PARK).ms >= 350
    assert request.attributes[semconv.PARKED_MS] >= 350
    assert request.attributes[semconv.LATENCY_MS] <= request.ms - 350
    assert trace.named(semconv.FETCH_READ).ms < 350


def test_an_error_is_named_on_every_hop(traced: Traced) -> None:
    written(traced, "refused")
    with traced.client("refused-reader") as client:
        client.call(fetch_request("refused", 99), FetchResponse, 12)
    trace = traced.collector.wait_for_tree("refused-reader", REFUSED)
    error = {semconv.ERROR_TYPE: "OFFSET_OUT_OF_RANGE"}
    for name in (semconv.REQUEST, semconv.GATEWAY_FETCH, semconv.HANDLE, semconv.FETCH_READ):
        span = trace.named(name)
        assert span.failed, name
        assert span.events == [(semconv.KAFKA_ERROR, error)]
        assert span.attributes[semconv.ERROR_TYPE] == "OFFSET_OUT_OF_RANGE"


def test_a_group_is_joined_and_the_wait_for_its_members_is_parked(traced: Traced) -> None:
    join = JoinGroupRequest(
        group_id="team",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    with traced.client("member") as client:
        joined = client.call(join, JoinGroupResponse, 3)
        assert joined.error_code == 0
        beat = HeartbeatRequest(group_id="team", generation_id=9, member_id=joined.member_id)
        assert client.call(beat, HeartbeatResponse, 3).error_code
    trace = traced.collector.wait_for_tree("member", JOIN)
    park = trace.named(semconv.GROUP_PARK)
    assert park.ms >= 150
    assert park.attributes[semconv.GROUP] == "team"
    assert (park.attributes[semconv.GENERATION], park.attributes[semconv.MEMBERS]) == (1, 1)
    request = trace.named(semconv.REQUEST).attributes
    assert request[semconv.PARKED_MS] >= 150
    assert request[semconv.GROUP] == "team"
    late = traced.collector.wait_for_tree("member", HEARTBEAT)
    assert late.named(semconv.REQUEST).attributes[semconv.ERROR_TYPE] == "ILLEGAL_GENERATION"


def test_a_transaction_is_one_story_of_linked_requests(traced: Traced) -> None:
    """From the span of any of its requests a reader gets to the one that began the session."""
    with traced.client("transaction") as client:
        create_topic(client, "in-a-transaction")
        producer = RawProducer(client, "story", TV2)
        assert producer.initialise() == 0
        epochs: list[int] = []
        for commit in (True, False):
            epochs.append(producer.epoch)
            assert producer.produce("in-a-transaction", {0: [b"a"]}) == 0
            assert producer.commit_offset("story-group", "in-a-transaction", 0, 1) == 0
            assert producer.end(commit=commit) == 0
    assert epochs == [0, 1]

    def told(trace: Trace) -> bool:
        """Whether it is the last request of the story."""
        names = [span.attributes.get(semconv.OPERATION) for span in trace.spans]
        return "EndTxn" in names and len(story()) == 7

    def story() -> dict[str, tuple[str, SeenSpan]]:
        found: dict[str, tuple[str, SeenSpan]] = {}
        for trace in traced.collector.traces():
            for span in trace.spans:
                if span.attributes.get(semconv.TRANSACTIONAL_ID) == "story":
                    found[span.span_id] = (str(span.attributes[semconv.OPERATION]), span)
        return found

    traced.collector.wait_for(told)
    (_, begun), *others = sorted(story().values(), key=lambda each: each[1].start)
    one = ["Produce", "TxnOffsetCommit", "EndTxn"]
    assert [operation for operation, _ in others] == one * 2
    for _, span in others:
        assert span.links == [begun.trace_id]
        assert span.attributes[semconv.PRODUCER_ID] == producer.id
    spans = [span for trace in traced.collector.traces() for span in trace.spans]
    ended = [span for span in spans if span.name == "gateway.kafka.end_txn"]
    ended.sort(key=lambda span: span.start)
    assert [span.attributes[semconv.COMMITTED] for span in ended] == [True, False]
    commits = [span for span in spans if span.name == "gateway.kafka.txn_offset_commit"]
    assert {span.attributes[semconv.DESTINATION] for span in commits} == {"in-a-transaction"}


def test_an_admin_op(traced: Traced) -> None:
    with traced.client("admin") as client:
        create_topic(client, "created")
    trace = traced.collector.wait_for_tree("admin", CREATE)
    assert trace.named(semconv.HANDLE).attributes[semconv.OP] == "CreateTopic"


def test_a_produce_continues_the_trace_in_its_first_record(traced: Traced) -> None:
    with traced.client("continues") as client:
        metadata(client, "continues")
        produce_batch(client, "continues", build_batch([Record(0, 1, b"k", b"v", HEADERS)]))
    trace = traced.collector.wait_for_tree("continues", PRODUCE)
    connect = trace.named(semconv.CONNECT)
    assert (connect.trace_id, connect.parent_id) == (TRACE_ID, SPAN_ID)
    assert connect.attributes[semconv.SAMPLED_BY] == "client"
    assert {span.tracestate for span in trace.spans} == {"vendor=7"}


def test_compressed_records_are_not_looked_into_but_linked(traced: Traced) -> None:
    batch = build_batch([Record(0, 1, b"k", b"v", HEADERS)], codec=Codec.LZ4)
    with traced.client("compressed") as client:
        metadata(client, "compressed")
        produce_batch(client, "compressed", batch)
        fetch(client, "compressed", 0)
    writer = traced.collector.wait_for_tree("compressed", PRODUCE)
    assert writer.spans[0].trace_id != TRACE_ID
    trace = traced.collector.wait_for_tree("compressed", READ)
    assert trace.named(semconv.FETCH_READ).links == [writer.spans[0].trace_id]


@pytest.mark.long
def test_what_was_not_sampled_leaves_its_gateways_part_when_it_fails(tmp_path: Path) -> None:
    with collector() as spans:
        env = {**spans.env, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
        with Cluster(tmp_path, env=env) as cluster:
            with RawClient(cluster.address, client_id="unsampled") as client:
                metadata(client, "late")
                produce_batch(client, "late", build_batch([Record(0, 1, b"k", b"v", HEADERS)]))
                client.call(fetch_request("late", 99), FetchResponse, 12)
            with RawClient(cluster.address) as client:
                client.socket.sendall(b"\0\0\0\4abcd")
                assert client.closed_by_peer()
        spans.wait_for(lambda trace: semconv.MALFORMED in str(trace.spans))
        failed, refused = spans.traces()
    assert failed.tree() == ["gateway.kafka.connect server", "  gateway.kafka.request internal"]
    request = failed.named(semconv.REQUEST)
    assert request.attributes[semconv.CLIENT_ID] == "unsampled"
    assert request.events == [(semconv.KAFKA_ERROR, {semconv.ERROR_TYPE: "OFFSET_OUT_OF_RANGE"})]
    assert failed.named(semconv.CONNECT).attributes[semconv.SAMPLED_BY] == "failed"
    assert semconv.MALFORMED in dict(refused.named(semconv.REQUEST).events)


@pytest.mark.long
def test_log_lines_name_the_request_and_its_trace(tmp_path: Path) -> None:
    with collector() as spans:
        json_lines = ("--log-format", "json")
        with Cluster(tmp_path, gateway_args=json_lines, env=spans.env) as cluster:
            with RawClient(cluster.address, client_id="logged") as client:
                metadata(client, "logged")
                cluster.broker.kill()
                # Answers of this API have no code for a broker that is away: its connection ends.
                client.socket.settimeout(60)
                with pytest.raises(ConnectionError):
                    metadata(client, "logged")
            lines = map(json.loads, cluster.gateway.log.read_text().splitlines())
            (line,) = [line for line in lines if "needs the broker" in line["message"]]
            trace = spans.wait_for(
                lambda trace: line["span_id"] in {span.span_id for span in trace.spans}
            )
    assert line["request_id"] == "0-2"
    request = trace.named(semconv.REQUEST)
    assert (request.trace_id, request.span_id) == (line["trace_id"], line["span_id"])
    assert request.failed


def test_without_an_endpoint_the_sdk_is_not_even_loaded(shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        metadata(client, "untraced")
        assert produce(client, "untraced", b"a") == 0
        assert values(fetch(client, "untraced", 0)) == [b"a"]
    for process in (shared_cluster.broker, shared_cluster.gateway):
        mapped = Path(f"/proc/{process.pid}/maps").read_text()
        assert "grpc" not in mapped
        assert "_upb" not in mapped  # protobuf's native part, which the exporter needs
