# pyright: reportPrivateUsage=false
"""ShareFetch reads the batches of acquired records; what it cannot read is given back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from quafka_gateway.context import RequestContext
from quafka_gateway.fetch.share_sessions import Place, ShareSession
from quafka_gateway.handlers import share_fetch
from quafka_mesh_ops.ops.records import FetchOpResp, FetchOps
from quafka_mesh_ops.ops.shares import (
    BatchRange,
    ReleasePartition,
    ReleaseRecords,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.records import rebase
from quafka_proto.schema.share_fetch import AcquiredRecords
from tests.unit.broker.tools import batch_of

PLACE: Place = (bytes(16), 0)
CORRUPT = FetchOpResp([], -1, ErrorCode.CORRUPT_MESSAGE)


def batch(offset: int) -> bytes:
    """A batch of two records."""
    made = bytearray(batch_of(b"1", b"2"))
    rebase(made, offset, 0)
    return bytes(made)


async def read(*answers: FetchOpResp) -> tuple[Any, list[tuple[int, int]], list[ReleasePartition]]:
    """Batches at 0, 2 and 4 with six acquired records; each read has the next answer."""
    asked: list[tuple[int, int]] = []
    given_back: list[ReleasePartition] = []
    left = iter(answers)

    async def fetch(op: FetchOps, _trace: None) -> list[FetchOpResp]:
        asked.extend((part.fetch_offset, part.max_bytes) for part in op.partitions)
        return [next(left, CORRUPT)]

    async def release(op: ReleaseRecords, _: None) -> None:
        assert (op.group, op.member_id, op.session) == ("g", "m", b"session")
        given_back.extend(op.partitions)

    tenant = SimpleNamespace(
        reader=SimpleNamespace(fetch=fetch), shares=SimpleNamespace(release=release)
    )
    context = cast(RequestContext, SimpleNamespace(tenant=tenant))
    found = {PLACE: share_fetch._Fetched(acquired=[AcquiredRecords(0, 5, 1)])}
    batches = [(PLACE, BatchRange(0, 5, 3 * len(batch(0))))]
    session = ShareSession(("g", "m"), b"session", 1)
    await share_fetch._read(session, found, batches, context, None)
    return found[PLACE], asked, given_back


async def test_the_rest_of_a_short_answer_is_read_again() -> None:
    size = len(batch(0))
    found, asked, given_back = await read(
        FetchOpResp([batch(0)], 9), FetchOpResp([batch(2), batch(4)], 9)
    )
    assert asked == [(0, 3 * size), (2, 2 * size)]
    assert found.records == [batch(0), batch(2), batch(4)]
    assert (found.acquired, found.error, given_back) == ([AcquiredRecords(0, 5, 1)], 0, [])


async def test_what_cannot_be_read_is_given_back() -> None:
    found, _, given_back = await read(FetchOpResp([batch(0)], 9))
    assert found.records == [batch(0)]
    assert (found.acquired, found.error) == ([AcquiredRecords(0, 1, 1)], 0)
    assert given_back == [ReleasePartition("", 0, 2, 5, PLACE[0])]


async def test_a_partition_of_which_nothing_can_be_read_has_the_error() -> None:
    found, asked, given_back = await read()
    assert (found.records, found.acquired) == ([], [])
    assert found.error == ErrorCode.CORRUPT_MESSAGE
    assert len(asked) == 4
    assert given_back == [ReleasePartition("", 0, 0, 5, PLACE[0])]
