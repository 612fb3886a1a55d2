"""Topics: a page of the list, and changes of configs with what they change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quafka_client import offsets, topics
from quafka_client.cluster import ClientCluster
from quafka_client.configs import Config, ConfigResourceKind, describe
from quafka_client.topics import TopicDetails
from quafka_console.data.paging import PAGE_ROWS, PageOf, page_of

_DEFAULT = "default"
_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic of a page. `records`: the offsets between start and end."""

    name: str
    partitions: int
    records: int
    policy: str
    internal: bool


async def topic_page(
    cluster: ClientCluster,
    search: str = "",
    number: int = 0,
    *,
    internal: bool = False,
    size: int = PAGE_ROWS,
) -> PageOf[TopicRow]:
    """A page of the topics that the user may describe; only they are asked about more.

    Raises ClientError.
    """
    every = await topics.summaries(cluster)
    shown = [each for each in every if internal or not each.internal]
    page = page_of(shown, search, lambda each: (each.name,), number, size)
    names = [each.name for each in page.rows]
    found = (await cluster.metadata(names)).topics if names else []
    usable = [each for each in found if not each.error_code]
    starts = await offsets.list_offsets_of(cluster, usable, offsets.START)
    ends = await offsets.list_offsets_of(cluster, usable, offsets.END)
    described = [each.name or "" for each in usable]
    configs = await describe(cluster, ConfigResourceKind.TOPIC, described)
    records: Counter[str] = Counter()
    for place, end in ends.items():
        records[place[0]] += end - starts.get(place, end)
    rows = [
        TopicRow(
            each.name,
            each.partitions,
            records[each.name],
            next((c.value or "" for c in configs.get(each.name, ()) if c.name == _POLICY), ""),
            each.internal,
        )
        for each in page.rows
    ]
    return PageOf(rows, page.total, page.matching, page.number, page.size)


def records_of(topic: TopicDetails) -> int | None:
    """The offsets between start and end of all partitions; None: those of one are unknown."""
    counts = [
        part.high_watermark - part.log_start_offset
        for part in topic.partitions
        if part.high_watermark >= 0 <= part.log_start_offset
    ]
    return sum(counts) if len(counts) == len(topic.partitions) else None


def skew_of(topic: TopicDetails) -> float | None:
    """The records of the largest partition, by those of a mean one; None: there are none."""
    counts = [max(0, part.high_watermark - part.log_start_offset) for part in topic.partitions]
    total = sum(counts)
    return max(counts) * len(counts) / total if total else None


def is_default(config: Config) -> bool:
    """Whether nobody has set the config of this topic."""
    return _DEFAULT in config.source.lower()


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
