"""Converts message sets, which clients before 0.11 produce and fetch, from and to record batches.

The conversion looks at every record, in plain Python, so it runs outside the event loop: in one
thread for all clients, which yields the interpreter between pieces of the work. Produces of one
connection reach the broker in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quafka_gateway.converter import Converter, breathe
from quafka_gateway.fetch.file_slice import in_memory
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp
from quafka_proto.errors import BatchError
from quafka_proto.message import Buffer
from quafka_proto.message_sets import from_batches, to_batch

_REQUEST_LIMIT = 64 << 20  # bytes that all partitions of a request may decompress to
_PARTITION_LIMIT = 64 << 10  # bytes that each may decompress to, if they are many
_RESPONSE_LIMIT = 57_671_680  # bytes of one response, as for newer clients


async def from_producer(
    message_sets: Sequence[Buffer], converter: Converter
) -> list[bytearray | BatchError]:
    """Return the batch of each partition's message set, or the error."""
    limit = max(_REQUEST_LIMIT // max(1, len(message_sets)), _PARTITION_LIMIT)

    def convert() -> list[bytearray | BatchError]:
        return [_batch(message_set, limit) for message_set in message_sets]

    return await converter.run(convert)


async def for_consumer(
    ops: Sequence[FetchOp],
    answers: Sequence[FetchOpResp],
    version: int,
    converter: Converter,
) -> list[FetchOpResp]:
    """Return the answers with message sets instead of batches, for a Fetch version below 4.

    A zstd batch, which no old client can read, becomes an error of its partition.
    """
    if not any(answer.records for answer in answers):
        return list(answers)
    magic = 0 if version < 2 else 1

    def convert() -> list[FetchOpResp]:
        room = _RESPONSE_LIMIT
        converted: list[FetchOpResp] = []
        for op, answer in zip(ops, answers, strict=True):
            if answer.records:
                answer = _message_set(answer, op.fetch_offset, min(op.max_bytes, room), magic)
                room -= sum(map(len, answer.records))
            converted.append(answer)
            if room <= 0:
                break
        rest = answers[len(converted) :]
        return [*converted, *(replace(answer, records=[]) for answer in rest)]

    return await converter.run(convert)


def _batch(message_set: Buffer, limit: int) -> bytearray | BatchError:
    try:
        return to_batch(message_set, limit, breathe)
    except BatchError as e:
        return e


def _message_set(answer: FetchOpResp, offset: int, max_bytes: int, magic: int) -> FetchOpResp:
    try:
        batches = in_memory(answer.records)
        records = from_batches(batches, magic, offset, max_bytes, pause=breathe)
        return replace(answer, records=[records])
    except BatchError as e:
        return replace(answer, records=[], error_code=e.code)
