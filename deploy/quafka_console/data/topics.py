"""Topics: a page of the list, one topic by parts, and changes of configs with what they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quafka_client import topics, transactions
from quafka_client.cluster import ClientCluster
from quafka_client.configs import Config, ConfigResourceKind, describe
from quafka_client.errors import RequestRefusedError
from quafka_client.topic_bounds import SOURCE, TopicBounds, bounds_of
from quafka_console.data.growth import Growth
from quafka_console.data.paging import PAGE_ROWS, PageOf, page_of
from quafka_proto.schema.configs import DescribeConfigsRequest
from quafka_proto.schema.metadata import MetadataResponseTopic
from quafka_proto.schema.transaction_admin import DescribeProducersRequest

_DEFAULT = "default"
_POLICY = "cleanup.policy"
_MOST_PRODUCERS = 50
_GROWTH = Growth()
"""Of end offsets: the same for all users who may read them."""


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """What all partitions of a topic have together.

    Attributes:
        records: the offsets between start and end; None: offsets have gaps, because another system
            stores the records.
        rate: offsets per second that were added in the last minute; None: not known yet.
        bytes: on the disks of the leaders; None: the user may not see it, or it is not known.
        skew: the records of the largest partition, by those of a mean one; None: there are none.
    """

    records: int | None
    rate: float | None
    bytes: int | None
    skew: float | None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic of a page."""

    name: str
    partitions: int
    totals: TopicTotals
    policy: str


async def topic_page(
    cluster: ClientCluster, search: str = "", number: int = 0, size: int = PAGE_ROWS
) -> PageOf[TopicRow]:
    """A page of the topics that the user may describe; only they are asked about more.

    Raises ClientError.
    """
    every = [each for each in await topics.summaries(cluster) if not each.internal]
    page = page_of(every, search, lambda each: (each.name,), number, size)
    names = [each.name for each in page.rows]
    found = (await cluster.metadata(names)).topics if names else []
    usable = [each for each in found if not each.error_code]
    bounds = await bounds_of(cluster, usable)
    configs = await _configs(cluster, [each.name or "" for each in usable])
    values = {name: {c.name: c.value or "" for c in its} for name, its in configs.items()}
    totals = totals_of(bounds, {name for name, its in values.items() if its.get(SOURCE)})
    nothing = TopicTotals(0, None, None, None)
    rows = [
        TopicRow(
            each.name,
            each.partitions,
            totals.get(each.name, nothing),
            values.get(each.name, {}).get(_POLICY, ""),
        )
        for each in page.rows
    ]
    return page.with_rows(rows)


def totals_of(bounds: TopicBounds, with_gaps: set[str]) -> dict[str, TopicTotals]:
    """The totals by topic. `with_gaps`: topics whose offsets do not count records."""
    ends, sizes = bounds.end_sums(), bounds.bytes()
    return {
        name: TopicTotals(
            None if name in with_gaps else sum(its),
            _GROWTH.per_second((name, bounds.ids[name], len(its)), bounds.at, ends[name]),
            None if sizes is None else sizes[name],
            max(its) * len(its) / sum(its) if sum(its) else None,
        )
        for name, its in bounds.records().items()
    }


async def _configs(cluster: ClientCluster, names: Sequence[str]) -> dict[str, list[Config]]:
    """The configs of topics; empty if the user may not see them, or the server has none."""
    if not cluster.any.has(DescribeConfigsRequest):
        return {}
    try:
        return await describe(cluster, ConfigResourceKind.TOPIC, names)
    except RequestRefusedError:
        return {}


# --- one topic ------------------------------------------------------------------------------------


async def topic_totals(cluster: ClientCluster, name: str) -> TopicTotals:
    """The totals of a topic, which ask about each partition. Raises ClientError."""
    topic = await cluster.topic(name)
    configs = (await _configs(cluster, [name])).get(name, ())
    external = any(each.name == SOURCE and each.value for each in configs)
    bounds = await bounds_of(cluster, [topic])
    return totals_of(bounds, {name} if external else set())[name]


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a page. `bytes`: None: the user may not see it, or it is not known."""

    partition: int
    leader: int
    start: int
    end: int
    bytes: int | None
    compaction: topics.Compaction | None


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic without what needs all of its partitions. `configs`: None: not known."""

    uuid: str | None
    id: str | None
    page: PageOf[PartitionRow]
    configs: Sequence[Config] | None


async def topic_view(
    cluster: ClientCluster, name: str, search: str = "", number: int = 0, size: int = PAGE_ROWS
) -> TopicView:
    """A topic, and a page of its partitions; only they are asked about more. Raises ClientError."""
    topic = await cluster.topic(name)
    every = sorted(topic.partitions, key=lambda each: each.partition_index)
    page = page_of(every, search, lambda each: (str(each.partition_index),), number, size)
    shown = MetadataResponseTopic(name=name, partitions=list(page.rows))
    bounds = await bounds_of(cluster, [shown])
    configs = (await _configs(cluster, [name])).get(name)
    compaction = {each.partition: each for each in await topics.compaction_of(cluster, name)}
    rows = [
        PartitionRow(
            each.partition_index,
            each.leader_id,
            bounds.starts[name, each.partition_index],
            bounds.ends[name, each.partition_index],
            None if bounds.sizes is None else bounds.sizes.get((name, each.partition_index)),
            compaction.get(each.partition_index),
        )
        for each in page.rows
    ]
    id_ = next((each.value for each in configs or () if each.name == "quafka.id"), None)
    return TopicView(
        topics.uuid_text(topic.topic_id),
        id_,
        page.with_rows(rows),
        None if configs is None else [c for c in configs if c.name not in topics.IDENTITY],
    )


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """A producer of a partition. -1: unknown. `open_from`: the first offset of its open
    transaction; None: it has none."""

    partition: int
    producer_id: int
    epoch: int
    last_sequence: int
    last_ms: int
    open_from: int | None


@dataclass(frozen=True, slots=True)
class ProducerRows:
    """The producers of some partitions: with open transactions first, then the last to write.

    `total`: there are more than `rows`.
    """

    rows: Sequence[ProducerRow]
    total: int


async def producer_rows(
    cluster: ClientCluster, name: str, partitions: Sequence[int]
) -> ProducerRows | None:
    """The producers of some partitions; None: the server does not report them.

    Raises ClientError: also if the user may not read the topic.
    """
    if not cluster.any.has(DescribeProducersRequest):
        return None
    found = await transactions.producers_of(cluster, name, partitions)
    rows = [
        ProducerRow(
            partition,
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        )
        for partition, its in found.items()
        for each in its
    ]
    rows.sort(key=lambda each: (each.open_from is None, -each.last_ms, each.producer_id))
    return ProducerRows(rows[:_MOST_PRODUCERS], len(rows))


# --- configs --------------------------------------------------------------------------------------


def is_default(config: Config) -> bool:
    """Whether nobody has set the config of this topic."""
    return config.source == _DEFAULT


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """A config before and after; None: its default."""

    name: str
    before: str | None
    after: str | None


def changes_of(configs: Sequence[Config], wanted: Mapping[str, str | None]) -> list[ConfigEdit]:
    """What the wanted values would change."""
    known = {config.name: config for config in configs}
    found: list[ConfigEdit] = []
    for name, value in wanted.items():
        config = known.get(name)
        before = None if config is None else config.value
        same = config is not None and (
            is_default(config) if value is None else value == config.value
        )
        if not same:
            found.append(ConfigEdit(name, before, value))
    return found
