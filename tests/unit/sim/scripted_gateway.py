"""A gateway that answers as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random

from quafka_proto.codec import decode
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import decode_request_header, encode_response
from quafka_proto.message import REQUESTS, Request, Response
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.sim.clients.job import Gateway, Job, Plan, TopicPlan
from tests.sim.history import History

TOPIC_ID = bytes(range(16))
Script = Callable[[Request], Response | None]
"""What to answer; None: nothing, ever."""


@asynccontextmanager
async def gateway(script: Script, name: str = "g1") -> AsyncGenerator[Gateway]:
    """Serve until the end of the block. Knows any topic, with one partition."""

    open_ones: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header, at = decode_request_header(frame)
                version = header.api_version
                request = decode(REQUESTS[header.api_key], version, frame, at)
                answer = _usual(request) or script(request)
                if answer is not None:
                    writer.writelines(encode_response(header.correlation_id, answer, version))
        except (EOFError, OSError):
            pass
        finally:
            writer.close()
            open_ones.discard(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Gateway(name, *server.sockets[0].getsockname())
    finally:
        server.close()
        for writer in list(open_ones):
            writer.close()
            await writer.wait_closed()


def _usual(request: Request) -> Response | None:
    if isinstance(request, ApiVersionsRequest):
        return ApiVersionsResponse()
    if isinstance(request, MetadataRequest):
        part = MetadataResponsePartition(partition_index=0)
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    error_code=ErrorCode.NONE,
                    name=each.name,
                    topic_id=TOPIC_ID,
                    partitions=[part],
                )
                for each in request.topics or ()
            ]
        )
    return None


def job_at(*gateways: Gateway, seed: int = 1) -> Job:
    """A job with one topic."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    history = History(lambda: loop.time() - begun)
    plan = Plan([TopicPlan("orders", 1)])
    return Job("client", gateways, history, Random(seed), plan, pace=0.1)
