"""`python -m tests.bench parked`: what it costs to wait, in idle sessions and with many consumers.

CPU is that of the processes themselves (/proc/PID/schedstat), per poll and as a share of one core.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from quafka_proto.headers import encode_request
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.support.cluster import Cluster, Process
from tests.support.kafka_calls import metadata
from tests.support.raw_client import RawClient

VERSION = 16
POLLS = 200
SECONDS = 10.0
WAIT_MS = 500  # what Kafka's consumers ask for


def cpu_seconds(process: Process) -> float:
    """CPU time that a process has used."""
    return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9


def resident_mib(process: Process) -> float:
    """Memory that a process has in RAM."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def request_of(
    topic_id: bytes, partitions: int, session: tuple[int, int], wait: int
) -> FetchRequest:
    parts = [FetchPartition(partition=n, partition_max_bytes=1 << 20) for n in range(partitions)]
    return FetchRequest(
        max_wait_ms=wait,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic_id=topic_id, partitions=parts)] if parts else [],
    )


def create(client: RawClient, name: str, partitions: int) -> bytes:
    """Make a topic; its id."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 5)
    return metadata(client, name).topics[0].topic_id


def session_poll(cluster: Cluster, partitions: int) -> None:
    """One idle session of so many partitions."""
    with RawClient(cluster.address) as client:
        topic_id = create(client, f"session-{partitions}", partitions)
        full = request_of(topic_id, partitions, (0, 0), 0)
        session = client.call(full, FetchResponse, VERSION).session_id
        assert session > 0

        def poll(epoch: int) -> int:
            client.send(request_of(topic_id, 0, (session, epoch), 1), VERSION)
            size = int.from_bytes(client._exactly(4), "big")
            client._exactly(size)
            return 4 + size

        for epoch in range(1, 20):
            poll(epoch)
        sent = sum(
            map(
                len,
                encode_request(1, "raw-client", request_of(topic_id, 0, (session, 1), 1), VERSION),
            )
        )
        before = [cpu_seconds(p) for p in (cluster.gateway, cluster.broker)]
        sizes = {poll(epoch) for epoch in range(20, 20 + POLLS)}
        used = [
            cpu_seconds(p) - b
            for p, b in zip((cluster.gateway, cluster.broker), before, strict=True)
        ]
    print(
        f"session of {partitions} idle partitions: {sent} bytes out, {max(sizes)} back; "
        f"per poll {used[0] / POLLS * 1e6:.0f} us gateway, {used[1] / POLLS * 1e6:.0f} us broker"
    )


async def parked(cluster: Cluster, consumers: int, partitions: int, wait: int) -> None:
    """So many idle consumers, each its own connection, each waiting `wait` ms at a time."""
    with RawClient(cluster.address, 60) as client:
        topic_id = create(client, f"parked-{consumers}-{partitions}", partitions)
    frame = b"".join(
        encode_request(1, "idle", request_of(topic_id, partitions, (0, 0), 0), VERSION)
    )
    before_mib = [resident_mib(p) for p in (cluster.gateway, cluster.broker)]
    polls = 0

    async def consume(delay: float) -> None:
        nonlocal polls
        await asyncio.sleep(delay)
        reader, writer = await asyncio.open_connection(*cluster.address)
        writer.write(frame)
        body = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        session = int.from_bytes(body[11:15], "big")
        epoch = 0
        while True:
            epoch += 1
            request = (
                request_of(topic_id, 0, (session, epoch), wait)
                if session
                else request_of(topic_id, partitions, (0, -1), wait)
            )
            writer.write(b"".join(encode_request(1, "idle", request, VERSION)))
            body = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            polls += 1

    ramp = max(2.0, consumers / 500)
    tasks = [asyncio.create_task(consume(ramp * n / consumers)) for n in range(consumers)]
    await asyncio.sleep(ramp + 5)
    processes = cluster.gateway, cluster.broker
    before, polls, began = [cpu_seconds(p) for p in processes], 0, time.monotonic()
    await asyncio.sleep(SECONDS)
    elapsed = time.monotonic() - began
    used = [cpu_seconds(p) - b for p, b in zip(processes, before, strict=True)]
    mib = [resident_mib(p) - b for p, b in zip(processes, before_mib, strict=True)]
    failed = [task for task in tasks if task.done()]
    assert not failed, failed[0].exception()
    print(
        f"{consumers} consumers of {partitions} idle partitions, waits of {wait} ms: "
        f"{polls / elapsed:.0f} polls/s; gateway {used[0] / elapsed:.1%} of a core, "
        f"broker {used[1] / elapsed:.1%}; memory {mib[0]:+.0f} MiB and {mib[1]:+.0f} MiB"
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main(_arguments: list[str]) -> None:
    """Print all figures."""
    limits = (
        "--max-connections", "20000", "--max-connections-per-ip", "20000",
        "--max-incremental-fetch-session-cache-slots", "20000",
    )  # fmt: skip
    steps: list[Callable[[Cluster], None]] = [
        lambda cluster: session_poll(cluster, 1),
        lambda cluster: session_poll(cluster, 1_000),
        lambda cluster: asyncio.run(parked(cluster, 1_000, 1, WAIT_MS)),
        lambda cluster: asyncio.run(parked(cluster, 1_000, 1, 30_000)),
        lambda cluster: asyncio.run(parked(cluster, 1_000, 100, 30_000)),
        lambda cluster: asyncio.run(parked(cluster, 10_000, 1, 30_000)),
    ]
    for step in steps:
        with (
            tempfile.TemporaryDirectory() as folder,
            Cluster(Path(folder), gateway_args=limits) as cluster,
        ):
            step(cluster)
