"""Checks of topics whose compaction is overdue."""

from __future__ import annotations

from itertools import islice

from quafka_client.checks.findings import Report
from quafka_client.connection import ClientConnection
from quafka_proto.schema.metadata import MetadataRequest, MetadataResponse
from quafka_proto.schema.quafka import DescribeCompactionRequest, DescribeCompactionResponse

_LATE_SECONDS = 7_200
"""The same as in the alert QuafkaCompactionLate."""
_MOST_TOPICS = 500
_MOST_NAMES = 5


async def check_compaction(report: Report, connection: ClientConnection, now: float) -> None:
    """Check the compacted topics that the client may describe. Raises ClientError."""
    if not connection.has(DescribeCompactionRequest):
        return
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    listed = await connection.call(request, MetadataResponse)
    names = [topic.name for topic in listed.topics if topic.name and not topic.error_code]
    compacted = 0
    late: dict[str, float] = {}
    for name in islice(sorted(names), _MOST_TOPICS):
        answer = await connection.call(
            DescribeCompactionRequest(topic=name), DescribeCompactionResponse
        )
        compacted += bool(answer.partitions)
        ages = [
            now - each.last_ms / 1000
            for each in answer.partitions
            if each.due and each.last_ms >= 0  # the broker's start time is not known here
        ]
        if ages and max(ages) > _LATE_SECONDS:
            late[name] = max(ages)
    if late:
        worst = sorted(late, key=lambda name: late[name], reverse=True)
        more = f" and {len(late) - _MOST_NAMES} more" if len(late) > _MOST_NAMES else ""
        report.warn(
            "compaction",
            f"due, and not compacted for {late[worst[0]] / 3_600:.1f} hours: "
            f"{', '.join(worst[:_MOST_NAMES])}{more}",
            "read the broker's log: a pass may fail, or have too little memory "
            "(log.cleaner.dedupe.buffer.size) or too small a share of the disk "
            "(wal.rewrite.bytes.per.second)",
        )
    elif compacted:
        plural = "" if compacted == 1 else "s"
        report.ok("compaction", f"{compacted} compacted topic{plural}, none of them late")
