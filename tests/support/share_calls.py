"""Calls of a member of a share group over a RawClient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quafka_proto.schema.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchPartition,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    ShareForgottenTopic,
)
from tests.support.raw_client import RawClient

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LONG = 20_000
Acks = Mapping[int, Sequence[tuple[int, int, Sequence[int]]]]
"""By partition: first and last offset, and the types."""


class ShareMember:
    """A member, and the epoch of its session."""

    def __init__(self, client: RawClient, group: str, topic_id: bytes, member: str = "m") -> None:
        self.client = client
        self.group = group
        self.topic_id = topic_id
        self.member = member
        self.epoch = 0

    def request(
        self, *partitions: int, acks: Acks | None = None, wait_ms: int = 0, **options: int
    ) -> ShareFetchRequest:
        named = {**dict.fromkeys(partitions, ()), **(acks or {})}
        parts = [ShareFetchPartition(number, _batches(its)) for number, its in named.items()]
        forget = options.get("forget")
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=options.get("epoch", self.epoch),
            max_wait_ms=wait_ms,
            min_bytes=options.get("min_bytes", 1),
            max_bytes=options.get("max_bytes", 1 << 20),
            max_records=options.get("max_records", 500),
            batch_size=options.get("batch_size", 0),
            share_acquire_mode=options.get("exact", 0),
            is_renew_ack=bool(options.get("renew", 0)),
            topics=[ShareFetchTopic(self.topic_id, parts)] if parts else [],
            forgotten_topics_data=[]
            if forget is None
            else [ShareForgottenTopic(self.topic_id, [forget])],
        )

    def answered(self, response: ShareFetchResponse) -> list[ShareFetchPartitionData]:
        assert response.error_code == 0, response
        self.epoch += 1
        return [part for topic in response.responses for part in topic.partitions]

    def fetch(
        self, *partitions: int, acks: Acks | None = None, wait_ms: int = 0, **options: int
    ) -> list[ShareFetchPartitionData]:
        request = self.request(*partitions, acks=acks, wait_ms=wait_ms, **options)
        return self.answered(self.client.call(request, ShareFetchResponse, 2))

    def acknowledge(self, acks: Acks, **options: int) -> list[int]:
        parts = [AcknowledgePartition(number, _batches(its)) for number, its in acks.items()]
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=options.get("epoch", self.epoch),
            is_renew_ack=bool(options.get("renew", 0)),
            topics=[AcknowledgeTopic(self.topic_id, parts)] if parts else [],
        )
        response = self.client.call(request, ShareAcknowledgeResponse, 2)
        assert response.error_code == 0, response
        self.epoch += 1
        return [part.error_code for topic in response.responses for part in topic.partitions]


def _batches(its: Sequence[tuple[int, int, Sequence[int]]]) -> list[AcknowledgementBatch]:
    return [AcknowledgementBatch(first, last, list(types)) for first, last, types in its]


def acquired(part: ShareFetchPartitionData) -> list[tuple[int, int, int]]:
    """The ranges of acquired records, with their delivery counts."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records
    ]
