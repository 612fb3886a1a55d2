"""What a client knows of topics: ids and numbers of partitions, refreshed after errors."""

from __future__ import annotations

from typing import NamedTuple

from quafka_proto.errors import ErrorCode as E
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.sim.clients.wire import Link


class Topic(NamedTuple):
    """A topic as the last metadata had it."""

    id: bytes
    partitions: int

    @property
    def text(self) -> str:
        """The id in the history."""
        return self.id.hex()


class Topics:
    """The topics that a program uses, by name and by id."""

    def __init__(self, link: Link) -> None:
        """Nothing is known yet; `link` is used for metadata."""
        self._link = link
        self._known: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}

    async def find(self, *names: str) -> dict[str, Topic]:
        """Those of some topics that exist; asks for unknown ones. Raises LostError."""
        unknown = [name for name in names if name not in self._known]
        if unknown:
            await self._ask(unknown)
        return {name: self._known[name] for name in names if name in self._known}

    def forget(self, *names: str) -> None:
        """Ask again when these are needed next."""
        for name in names:
            self._known.pop(name, None)

    async def _ask(self, names: list[str]) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        answer = await self._link.call(request, MetadataResponse)
        for topic in answer.topics:
            if topic.name is not None and topic.error_code == E.NONE:
                self._known[topic.name] = Topic(topic.topic_id, len(topic.partitions))
                self.names[topic.topic_id] = topic.name
