"""Finds traces by what they name, how long they took, and the records that they carried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quafka_console.data.paging import PageOf, matches, page_of
from quafka_console.data.traces.spans import TraceSpan
from quafka_console.data.traces.store import StoredTrace, TraceStore
from quafka_loop.slices import listed
from quafka_telemetry import semconv

_WRITES = semconv.GATEWAY_PRODUCE
_DELIVERS = (semconv.GATEWAY_FETCH, semconv.GATEWAY_SHARE_FETCH)
_MOST_DELIVERIES = 20


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """Which traces are wanted. Empty: any.

    Attributes:
        words: parts of the trace's id, API, topics, clients or groups.
        api, topic, client, group, org: exactly these. `org`: a number.
        seconds: at least this long, without waiting.
        failed: only those with an error.
        without_client: not those of this client id.
    """

    words: str = ""
    api: str = ""
    topic: str = ""
    client: str = ""
    group: str = ""
    org: str = ""
    seconds: float = 0.0
    failed: bool = False
    without_client: str = ""

    def wants(self, trace: StoredTrace) -> bool:
        """Whether the trace is wanted."""
        exact = (
            (self.api, semconv.OPERATION), (self.client, semconv.CLIENT_ID),
            (self.group, semconv.GROUP), (self.org, semconv.ORG),
        )  # fmt: skip
        return (
            trace.working_seconds >= self.seconds
            and (trace.failed or not self.failed)
            and all(not value or value in trace.values(name) for value, name in exact)
            and (
                not self.without_client
                or self.without_client not in trace.values(semconv.CLIENT_ID)
            )
            and (not self.topic or self.topic in trace.topics)
            and (not self.words or matches(self.words, *_texts(trace)))
        )


def title_of(trace: StoredTrace) -> str:
    """What it is of: a Kafka API, or the name of its first span."""
    return trace.root.attributes.get(semconv.OPERATION) or trace.root.name


def _texts(trace: StoredTrace) -> list[str]:
    names = semconv.OPERATION, semconv.CLIENT_ID, semconv.GROUP
    found = [value for name in names for value in trace.values(name)]
    return [trace.trace_id, trace.root.name, *found, *trace.topics]


async def search(store: TraceStore, query: TraceQuery, number: int) -> PageOf[StoredTrace]:
    """A page of the traces that are wanted, the last ones first."""
    every = store.last()
    judged = await listed((each, query.wants(each)) for each in every)
    wanted = (each for each, is_wanted in judged if is_wanted)
    return page_of(wanted, number=number, total=len(every))


async def linking(store: TraceStore, trace_id: str) -> list[StoredTrace]:
    """The traces that link to one, at most 20: the deliveries of what a produce wrote, say."""
    judged = await listed((each, trace_id in each.links) for each in store.last())
    return [each for each, links in judged if links][:_MOST_DELIVERIES]


@dataclass(frozen=True, slots=True)
class RecordPath:
    """The sampled requests that carried a record.

    Attributes:
        produced: the request that wrote it; None: it was not sampled, or has left.
        delivered: the fetches that returned it, the first one first, at most 20.
    """

    produced: StoredTrace | None
    delivered: Sequence[StoredTrace]


async def path_of(
    store: TraceStore, topic: str, partition: int, offset: int, without_client: str = ""
) -> RecordPath:
    """The path of one record. `without_client`: whose fetches are left out."""

    def carries(span: TraceSpan) -> bool:
        return any(
            each.first <= offset <= each.last and (each.topic, each.partition) == (topic, partition)
            for each in span.places
        )

    def named(trace: StoredTrace) -> str:
        return next((each.name for each in trace.spans if each.places and carries(each)), "")

    judged = await listed((each, named(each)) for each in reversed(store.last()))
    produced = next((each for each, name in judged if name == _WRITES), None)
    delivered = [
        each
        for each, name in judged
        if name in _DELIVERS and without_client not in each.values(semconv.CLIENT_ID)
    ]
    return RecordPath(produced, delivered[:_MOST_DELIVERIES])
