"""The names of topics by their ids, for decisions about requests that name topics by id.

An id keeps its name for ever, so a cached name is never wrong: at worst its topic is gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

_MOST = 100_000
"""Names that are kept; the oldest are evicted first. Some 20 MB."""

Describe = Callable[[DescribeTopics, TraceContext | None], Awaitable[DescribeTopicsResp]]


class TopicNames:
    """Names by id, of one org."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._names: dict[bytes, str] = {}

    def known(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, if it is kept."""
        return self._names.get(topic_id)

    def learn(self, topics: Iterable[TopicDescription]) -> None:
        """Keep the names of some topics."""
        names = self._names
        for topic in topics:
            if topic.topic and topic.topic_id and not topic.error_code:
                names.pop(topic.topic_id, None)
                names[topic.topic_id] = topic.topic
        while len(names) > _MOST:
            del names[next(iter(names))]

    async def find(
        self, ids: Iterable[bytes], trace: TraceContext | None
    ) -> dict[bytes, tuple[str, int]]:
        """The name of each id; or "" and the error code of one that has none, as far as the
        brokers answer."""
        found: dict[bytes, tuple[str, int]] = {}
        missing: list[bytes] = []
        for topic_id in dict.fromkeys(ids):
            name = self._names.get(topic_id)
            if name is None:
                missing.append(topic_id)
            else:
                found[topic_id] = name, 0
        if missing:
            found.update(await self._look_up(missing, trace))
        return found

    async def _look_up(
        self, ids: list[bytes], trace: TraceContext | None
    ) -> dict[bytes, tuple[str, int]]:
        try:
            answer = await self._describe(DescribeTopics([], ids), trace)
        except BrokerUnavailableError as e:
            code = e.code_or(ErrorCode.LEADER_NOT_AVAILABLE)
            return dict.fromkeys(ids, ("", code))
        self.learn(answer.topics)
        return {
            topic_id: (("", topic.error_code) if topic.error_code else (topic.topic, 0))
            for topic_id, topic in zip(ids, answer.topics, strict=True)
        }
