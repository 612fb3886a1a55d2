"""The ids and generations of topics that are served from Kafka's folders."""

from __future__ import annotations

from blake3 import blake3

from quafka_broker.topics.topic import ADOPTED


def uuid_without_id(cluster_id: str, name: str) -> bytes:
    """The id of a topic without an id of Kafka (before version 2.8)."""
    return blake3(f"{cluster_id}/{name}".encode()).digest()[:16]


def adopted_generation(uuid: bytes) -> int:
    """The generation of an adopted topic with this id."""
    return int.from_bytes(uuid[:4], "big") | ADOPTED
