"""Virtual topics: which global message ids belong to a partition, and at which offset each is.

A partition has no file of its own. It is the set of global ids of its records, a Roaring bitmap;
a record's virtual offset is the log start base plus its rank in the set. Ids are handed out in
append order, so ranks follow the order of the log.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from blake3 import blake3
from pyroaring import BitMap64


@lru_cache(maxsize=1 << 16)
def topic_hash(org_id: int, topic: str) -> bytes:
    """Blake3 of the org id (8 bytes, big-endian) and the topic's name in UTF-8, cut to 128 bits.

    The org's id in front salts it: equal names of two orgs have unrelated hashes (seed 1).
    """
    return blake3(org_id.to_bytes(8, "big") + topic.encode()).digest()[:16]


class VirtualTopicId(NamedTuple):
    """Names one partition of one incarnation of a topic.

    `generation` tells a topic from an earlier, deleted one of the same name.
    """

    org_id: int
    topic_hash: bytes
    partition: int
    generation: int

    @property
    def key(self) -> str:
        """Rafka's key: "{org_id}-{topic_hash_decimal}-{partition}"."""
        return f"{self.org_id}-{int.from_bytes(self.topic_hash, 'big')}-{self.partition}"


class VirtualTopic:
    """One partition's durable records.

    Invariant: `high_watermark == log_start + number of ids`. It moves only when records are
    durable (or, with a laxer `wal.fsync`, written).
    """

    __slots__ = ("_ids", "high_watermark", "id", "log_start")

    def __init__(self, id: VirtualTopicId, log_start: int = 0) -> None:  # noqa: A002
        self.id = id
        self.log_start = log_start
        self.high_watermark = log_start
        self._ids = BitMap64()

    def add(self, global_id: int, count: int) -> None:
        """Append `count` records with dense ids from `global_id` on."""
        self._ids.add_range(global_id, global_id + count)
        self.high_watermark += count

    def global_id_at(self, offset: int) -> int:
        """The id of the record at a virtual offset in [log_start, high_watermark)."""
        return self._ids[offset - self.log_start]
