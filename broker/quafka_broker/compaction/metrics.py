"""Metrics of compaction: of each compacted topic, on the page of details."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from quafka_broker.compaction.compactor import Compactor
from quafka_broker.compaction.figures import TopicCompaction, compacted_topics
from quafka_broker.topics.registry import Registry
from quafka_loop import clock
from quafka_telemetry.metrics import Family, FamilyKind, counter

_TOPIC = ("org", "topic")
_COLUMNS: tuple[tuple[str, str, Callable[[TopicCompaction], float]], ...] = (
    (
        "dirty_bytes", "Bytes of a compacted topic that the next pass may compact",
        lambda each: each.dirty_bytes,
    ),
    ("clean_bytes", "Bytes that passes have covered", lambda each: each.clean_bytes),
    ("due_partitions", "Partitions that the next pass includes", lambda each: each.due),
    (
        "left_ratio", "Share of the examined bytes that the last passes have kept",
        lambda each: each.ratio,
    ),
)  # fmt: skip


@dataclass(slots=True)
class CompactionMetrics:
    """The compaction of every compacted topic, as `read` found it."""

    compactor: Compactor
    registry: Registry
    topics: list[TopicCompaction] = field(default_factory=list[TopicCompaction])
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = clock.time()

    async def read(self) -> None:
        """Read the status of every partition of compacted topics, in slices."""
        self.topics = await compacted_topics(self.compactor, self.registry.every_topic())

    def age(self, each: TopicCompaction) -> float:
        """Seconds since the last pass over a topic or, without one, since the broker's start."""
        return clock.time() - (each.last_ms / 1000 if each.last_ms >= 0 else self._began)

    def collect(self) -> Iterator[Family]:
        """The families of all topics together."""
        yield counter("quafka_compaction_passes", "Completed passes", self.compactor.passes)
        yield counter(
            "quafka_compaction_failures", "Runs of compaction that failed", self.compactor.failures
        )

    def detail(self) -> Iterator[Family]:
        """The families; none if no topic is compacted."""
        if not self.topics:
            return
        for name, words, value in (
            *_COLUMNS,
            (
                "age_seconds",
                "Seconds since the last pass over a topic or, without one, since the start",
                self.age,
            ),
        ):
            yield Family(
                f"quafka_compaction_{name}", FamilyKind.GAUGE, words,
                (((str(each.topic.org), each.topic.name), value(each)) for each in self.topics),
                _TOPIC,
            )  # fmt: skip
