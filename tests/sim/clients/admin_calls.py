"""Administrators' requests, each with its call in the history. One attempt; all raise LostError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from quafka_proto.errors import ErrorCode as E
from quafka_proto.message import Request, Response
from quafka_proto.schema import offsets
from quafka_proto.schema.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.sim.clients.answers import is_certain, refused
from tests.sim.clients.job import Job, Place
from tests.sim.clients.wire import Link, LostError

_SERVER_MS = 8_000
_TOPIC, _GROUP = 2, 32
_KINDS = {"topic": _TOPIC, "group": _GROUP}
_SET, _DELETE = 0, 1
_SET_BY = {_TOPIC: 1, _GROUP: 8}
"""The source of a config that is set for the resource itself, not by default."""

_NEWEST = {offsets.OffsetCommitRequest.api_key: 9, offsets.OffsetFetchRequest.api_key: 9}
"""The last versions in which topics have names."""

R = TypeVar("R", bound=Response)


class Calls:
    """The requests of one client."""

    def __init__(self, job: Job, link: Link) -> None:
        self._job = job
        self._link = link

    async def _call(
        self, request: Request, answer: type[R], op: str, **fields: Any
    ) -> tuple[int, R]:
        """Connect, write the call into the history, and wait for the answer."""
        wire = await self._link.ready()
        call = self._job.call(op, gateway=wire.gateway, **fields)
        try:
            return call, await wire.call(request, answer, newest=_NEWEST.get(request.api_key, 99))
        except LostError as e:
            self._job.history.unknown(call, str(e))
            raise

    def _end(self, call: int, code: int, ok: Mapping[str, Any], **if_refused: Any) -> int:
        if code:
            refused(self._job, call, code, **if_refused)
        else:
            self._job.history.ok(call, **ok)
        return code

    # --- topics -----------------------------------------------------------------------------

    async def create(self, topic: str, partitions: int, configs: Mapping[str, str]) -> int:
        """Create a topic; returns the error."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=_SERVER_MS)
        fields = {"topic": topic, "partitions": partitions, "configs": dict(configs)}
        call, answer = await self._call(request, CreateTopicsResponse, "create_topic", **fields)
        (result,) = answer.topics
        exists = {"exists": True} if result.error_code == E.TOPIC_ALREADY_EXISTS else {}
        return self._end(call, result.error_code, {"topic_id": result.topic_id.hex()}, **exists)

    async def delete(self, topic: str) -> int:
        """Delete a topic; returns the error."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=_SERVER_MS
        )
        call, answer = await self._call(request, DeleteTopicsResponse, "delete_topic", topic=topic)
        code = answer.responses[0].error_code
        return self._end(call, code, {}, **_absent(code))

    async def add_partitions(self, topic: str, total: int) -> int:
        """Grow a topic; returns the error."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total, assignments=None)],
            timeout_ms=_SERVER_MS,
        )
        call, answer = await self._call(
            request, CreatePartitionsResponse, "add_partitions", topic=topic, partitions=total
        )
        code = answer.results[0].error_code
        return self._end(call, code, {}, **_absent(code))

    async def describe(self, topic: str) -> int | None:
        """A topic's number of partitions; None if there is none, or an error."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        call, answer = await self._call(request, MetadataResponse, "describe_topic", topic=topic)
        (found,) = answer.topics
        if found.error_code == E.UNKNOWN_TOPIC_OR_PARTITION:
            self._job.history.ok(call, topic_id=None)
            return None
        ok = {"topic_id": found.topic_id.hex(), "partitions": len(found.partitions)}
        return None if self._end(call, found.error_code, ok) else len(found.partitions)

    async def list_topics(self) -> Sequence[str]:
        """The names of all topics."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        call, answer = await self._call(request, MetadataResponse, "list_topics")
        names = sorted(topic.name for topic in answer.topics if topic.name and not topic.error_code)
        self._job.history.ok(call, topics=names)
        return names

    async def delete_records(self, place: Place, offset: int) -> int:
        """Delete the records below an offset; returns the error."""
        part = DeleteRecordsPartition(partition_index=place[1], offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=place[0], partitions=[part])], timeout_ms=_SERVER_MS
        )
        call, answer = await self._call(
            request,
            DeleteRecordsResponse,
            "delete_records",
            topic=place[0],
            partition=place[1],
            offset=offset,
        )
        (result,) = answer.topics[0].partitions
        return self._end(call, result.error_code, {"log_start": result.low_watermark})

    # --- configs ----------------------------------------------------------------------------

    async def alter_config(self, resource: str, name: str, value: str | None) -> int:
        """Set a config of "topic:NAME" or "group:NAME"; returns the error."""
        kind, _, of = resource.partition(":")
        operation = _DELETE if value is None else _SET
        change = IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=_KINDS[kind], resource_name=of, configs=[change]
                )
            ]
        )
        fields = {"resource": resource, "name": name, "value": value}
        call, answer = await self._call(
            request, IncrementalAlterConfigsResponse, "alter_config", **fields
        )
        code = answer.responses[0].error_code
        return self._end(call, code, {}, **_absent(code))

    async def describe_config(self, resource: str, name: str) -> int:
        """Read a config; returns the error."""
        kind, _, of = resource.partition(":")
        wanted = DescribeConfigsResource(
            resource_type=_KINDS[kind], resource_name=of, configuration_keys=[name]
        )
        request = DescribeConfigsRequest(resources=[wanted])
        fields = {"resource": resource, "name": name}
        call, answer = await self._call(
            request, DescribeConfigsResponse, "describe_config", **fields
        )
        (result,) = answer.results
        set_here = [c for c in result.configs if c.config_source == _SET_BY[_KINDS[kind]]]
        return self._end(
            call, result.error_code, {"value": set_here[0].value if set_here else None}
        )

    # --- offsets of groups ------------------------------------------------------------------

    async def fetch_offsets(
        self, group: str, places: Sequence[Place], member: tuple[str, int] | None = None
    ) -> dict[Place, int] | int:
        """A group's stable offsets, -1 where there is none; or the error."""
        topics = [
            offsets.OffsetFetchRequestTopics(name=name, partition_indexes=its)
            for name, its in by_topic(places).items()
        ]
        wanted = offsets.OffsetFetchRequestGroup(group_id=group, topics=topics)
        if member is not None:
            wanted.member_id, wanted.member_epoch = member
        request = offsets.OffsetFetchRequest(groups=[wanted], require_stable=True)
        call, answer = await self._call(
            request,
            offsets.OffsetFetchResponse,
            "offset_fetch",
            group=group,
            partitions=[list(place) for place in places],
        )
        (found,) = answer.groups
        parts = [(topic.name, part) for topic in found.topics for part in topic.partitions]
        code = found.error_code or next((p.error_code for _, p in parts if p.error_code), 0)
        got = {(name, part.partition_index): part.committed_offset for name, part in parts}
        self._end(call, code, {"offsets": [[*place, offset] for place, offset in got.items()]})
        return code or got

    async def commit_offsets(
        self, group: str, positions: Mapping[Place, int], member: tuple[str, int] | None = None
    ) -> int:
        """Commit offsets, as a member (id and epoch) or as an administrator; the first error."""
        topics = [
            offsets.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    offsets.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=positions[name, partition]
                    )
                    for partition in its
                ],
            )
            for name, its in by_topic(positions).items()
        ]
        request = offsets.OffsetCommitRequest(group_id=group, topics=topics)
        fields: dict[str, Any] = {"group": group}
        if member is not None:
            request.member_id, request.generation_id_or_member_epoch = member
            fields |= {"member": member[0], "epoch": member[1]}
        fields["offsets"] = [[*place, offset] for place, offset in positions.items()]
        call, answer = await self._call(
            request, offsets.OffsetCommitResponse, "offset_commit", **fields
        )
        parts = [
            ([topic.name, part.partition_index], part.error_code)
            for topic in answer.topics
            for part in topic.partitions
        ]
        return self._end_parts(call, parts)

    async def delete_offsets(self, group: str, places: Sequence[Place]) -> int:
        """Delete a group's offsets; the first error."""
        request = offsets.OffsetDeleteRequest(
            group_id=group,
            topics=[
                offsets.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        offsets.OffsetDeleteRequestPartition(partition_index=p) for p in its
                    ],
                )
                for name, its in by_topic(places).items()
            ],
        )
        call, answer = await self._call(
            request,
            offsets.OffsetDeleteResponse,
            "offset_delete",
            group=group,
            partitions=[list(place) for place in places],
        )
        codes = [answer.error_code] + [p.error_code for t in answer.topics for p in t.partitions]
        return self._end(call, max(codes, key=abs), {})

    def _end_parts(self, call: int, parts: Sequence[tuple[list[Any], int]]) -> int:
        """End a call that is answered partition by partition; returns the first error."""
        codes = [code for _, code in parts if code]
        unclear = [code for code in codes if not is_certain(code)]
        if unclear or len(codes) == len(parts):
            refused(self._job, call, (unclear or codes)[0])
        else:
            self._job.history.ok(call, refused=[place for place, code in parts if code])
        return codes[0] if codes else 0


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Partitions by their topics."""
    found: dict[str, list[int]] = {}
    for name, partition in places:
        found.setdefault(name, []).append(partition)
    return found


def _absent(code: int) -> dict[str, bool]:
    return {"exists": False} if code == E.UNKNOWN_TOPIC_OR_PARTITION else {}
