"""The baseline: the least that can stand where Quafka stands.

One asyncio process that speaks just enough Kafka for a producer and a consumer, keeps batches in
a list in memory, and does nothing else: no mesh, no log, no disk, no checks. What a client
achieves against it is the ceiling for a server in Python on this machine.

Run as a process of its own; prints `host:port` when it listens.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import Any

from quafka_proto.codec import decode
from quafka_proto.headers import decode_request_header, encode_response
from quafka_proto.records import BATCH_HEADER_SIZE
from quafka_proto.schema.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quafka_proto.schema.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quafka_proto.schema.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

VERSIONS = {0: (0, 9), 1: (4, 12), 2: (1, 7), 3: (0, 12), 18: (0, 3)}
REQUESTS: dict[int, Any] = {
    0: ProduceRequest,
    1: FetchRequest,
    2: ListOffsetsRequest,
    3: MetadataRequest,
    18: ApiVersionsRequest,
}


class MemoryTopics:
    """Batches of one partition per topic, in lists."""

    def __init__(self) -> None:
        self.batches: dict[str, list[bytes]] = {}
        self.bases: dict[str, list[int]] = {}
        self.ends: dict[str, int] = {}
        self.appended = asyncio.Condition()

    def append(self, topic: str, batch: memoryview) -> int:
        base = self.ends.get(topic, 0)
        stored = base.to_bytes(8, "big") + batch[8:]
        self.batches.setdefault(topic, []).append(stored)
        self.bases.setdefault(topic, []).append(base)
        self.ends[topic] = base + int.from_bytes(stored[23:27], "big") + 1
        assert len(stored) >= BATCH_HEADER_SIZE
        return base

    def read(self, topic: str, offset: int, limit: int) -> list[bytes]:
        if offset >= self.ends.get(topic, 0):
            return []
        at = bisect_right(self.bases[topic], offset) - 1
        found: list[bytes] = []
        for batch in self.batches[topic][at:]:
            if found and limit < len(batch):
                break
            found.append(batch)
            limit -= len(batch)
        return found


class Loopback:
    """The server."""

    def __init__(self) -> None:
        self.topics = MemoryTopics()
        self.address = ("", 0)

    async def serve(self) -> None:
        server = await asyncio.start_server(self.client, "127.0.0.1", 0, limit=1 << 22)
        self.address = server.sockets[0].getsockname()
        print(f"127.0.0.1:{self.address[1]}", flush=True)
        await server.serve_forever()

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header, at = decode_request_header(frame)
                request = decode(REQUESTS[header.api_key], header.api_version, frame, at)
                answer = await getattr(self, f"api_{header.api_key}")(request)
                writer.writelines(
                    encode_response(header.correlation_id, answer, header.api_version)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def api_0(self, request: ProduceRequest) -> ProduceResponse:
        responses = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=p.index,
                        base_offset=self.topics.append(topic.name, memoryview(p.records or b"")),
                    )
                    for p in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        async with self.topics.appended:
            self.topics.appended.notify_all()
        return ProduceResponse(responses=responses)

    async def api_1(self, request: FetchRequest) -> FetchResponse:
        response = self.read(request)
        if not any(p.records for t in response.responses for p in t.partitions):
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000), self.topics.appended:
                    await self.topics.appended.wait()
            except TimeoutError:
                pass
            response = self.read(request)
        return response

    def read(self, request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        PartitionData(
                            partition_index=p.partition,
                            high_watermark=self.topics.ends.get(topic.topic, 0),
                            last_stable_offset=self.topics.ends.get(topic.topic, 0),
                            log_start_offset=0,
                            records=list(
                                self.topics.read(topic.topic, p.fetch_offset, p.partition_max_bytes)
                            ),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def api_2(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index,
                            offset=0 if p.timestamp == -2 else self.topics.ends.get(topic.name, 0),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def api_3(self, request: MetadataRequest) -> MetadataResponse:
        names = [topic.name or "" for topic in request.topics or []] or list(self.topics.ends)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host=self.address[0], port=self.address[1])],
            cluster_id="loopback",
            controller_id=0,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    topic_id=name.encode()[:16].ljust(16, b"."),
                    partitions=[
                        MetadataResponsePartition(leader_id=0, replica_nodes=[0], isr_nodes=[0])
                    ],
                )
                for name in names
            ],
        )

    async def api_18(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in VERSIONS.items()
        ]
        return ApiVersionsResponse(api_keys=keys)


if __name__ == "__main__":
    asyncio.run(Loopback().serve())
