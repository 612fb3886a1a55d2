"""Shards that move between brokers, as traces: at both brokers, and of a request that waited."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quafka_broker.cluster.placement import placement
from quafka_proto.schema.produce import ProduceResponse
from quafka_telemetry import semconv
from tests.support.kafka_calls import metadata, produce_request
from tests.support.prometheus import get
from tests.support.raw_client import RawClient
from tests.support.spans import SeenSpan, Trace, collector
from tests.support.store_cluster import StoreCluster

pytestmark = pytest.mark.long

TAKE_OVER = {
    semconv.SHARD_PROBE,
    semconv.SHARD_CLAIM,
    semconv.SHARD_READ_AHEAD,
    semconv.SHARD_FENCE,
    semconv.SHARD_VERIFY,
    semconv.SHARD_MATERIALISE,
    semconv.SHARD_REPLAY,
    semconv.SHARD_START,
}
GIVE_UP = {
    semconv.SHARD_PREPARE,
    semconv.SHARD_DRAIN,
    semconv.SHARD_CLOSE,
    semconv.SHARD_RELEASE,
    semconv.SHARD_AWAIT_OWNER,
    semconv.SENT,
}
_UNTIL_SECONDS = 30.0


@contextmanager
def producing(cluster: StoreCluster) -> Iterator[None]:
    """One small produce after the other while the block runs, whatever their answers are."""
    ended = threading.Event()

    def run() -> None:
        with RawClient(cluster.address(), client_id="waits") as client:
            while not ended.is_set():
                client.call(produce_request("t", b"x"), ProduceResponse, 9)
                time.sleep(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_UNTIL_SECONDS)
    assert not thread.is_alive()


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _UNTIL_SECONDS
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def has_owner(cluster: StoreCluster, name: str) -> None:
    until(lambda: cluster.owners() == [name], f"the shard is at {name}")


def whole(trace: Trace, name: str, reason: str) -> bool:
    """Whether the trace is that of a move for this reason."""
    return any(
        span.name == name and span.attributes[semconv.REASON] == reason for span in trace.spans
    )


def steps(trace: Trace, of: SeenSpan) -> set[str]:
    return {span.name for span in trace.spans if span.parent_id == of.span_id}


def test_a_move_is_a_trace_at_both_brokers_and_a_link_of_what_waited(tmp_path: Path) -> None:
    with (
        collector() as spans,
        StoreCluster(
            tmp_path, shards=1, env=spans.env, gateway_args=("--trace-spans-per-second", "0")
        ) as c,
    ):
        nodes = {process.ready["node_id"]: name for name, process in c.brokers.items()}
        (node,) = placement(1, nodes)
        first = nodes.pop(node)
        ((next_node, second),) = nodes.items()
        has_owner(c, first)
        until(
            lambda: "\nquafka_cluster_brokers 2\n" in get(c.page(first), "/metrics")[2],
            f"{first} sees {second}",
        )
        with RawClient(c.address()) as client:
            metadata(client, "t")
        with producing(c):
            c.drain(first)
            has_owner(c, second)
        given = spans.wait_for(lambda trace: whole(trace, semconv.GIVE_UP, "stopping"))
        give_up = given.named(semconv.GIVE_UP)
        epoch = give_up.attributes[semconv.SHARD_EPOCH] + 1
        offered = spans.wait_for(
            lambda trace: (
                whole(trace, semconv.TAKE_OVER, "released")
                and trace.named(semconv.TAKE_OVER).attributes[semconv.SHARD_EPOCH] == epoch
            )
        )
        waited = spans.wait_for(
            lambda trace: any(
                span.name == semconv.QUEUED and span.links == [offered.spans[0].trace_id]
                for span in trace.spans
            )
        )
        c.start_broker(first)
        has_owner(c, first)
        c.kill(first)
        has_owner(c, second)
        ended = spans.wait_for(lambda trace: whole(trace, semconv.TAKE_OVER, "lease ended"))

    take_over = offered.named(semconv.TAKE_OVER)
    assert steps(given, give_up) - {semconv.QUEUED} == GIVE_UP  # if the connection takes longer
    # Unless the next owner has seen by itself that the shard is free, before the offer arrived.
    links = [given.spans[0].trace_id]
    assert (steps(offered, take_over) - TAKE_OVER, take_over.links) in (
        ({semconv.SHARD_LOOK}, links),
        ({semconv.SHARD_LIST}, []),
    )
    assert steps(offered, take_over) > TAKE_OVER
    assert give_up.attributes[semconv.NODE] == node
    assert give_up.attributes[semconv.NEXT_OWNER] == next_node
    assert take_over.attributes[semconv.NODE] == next_node
    assert offered.named(semconv.SHARD_MATERIALISE).attributes[semconv.STORE_BYTES] > 0
    for trace in (given, offered, waited):
        places = [s for s in trace.spans if semconv.SHARD in s.attributes]
        assert {span.attributes[semconv.SHARD] for span in places} == {0}
        for span in trace.spans:
            assert span.attributes.keys() <= semconv.ATTRIBUTES
    for trace, root in ((given, give_up), (offered, take_over)):
        assert trace.orphans(root.name) == []
        ends = [s.end for s in trace.spans if s.parent_id == root.span_id and s.kind == "internal"]
        assert max(ends) <= root.end
    killed = ended.named(semconv.TAKE_OVER).attributes
    assert killed[semconv.PREVIOUS_OWNER] == node
    assert killed[semconv.LEADER_EPOCH] > take_over.attributes[semconv.LEADER_EPOCH]
