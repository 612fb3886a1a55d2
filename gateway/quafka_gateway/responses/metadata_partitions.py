"""The partitions of topics in a Metadata response, encoded once for all topics.

Partitions differ only in their number: partition 7 of any topic has the same bytes in the same
version of the response. One block holds partitions 0 to n, 24 to 46 bytes each, and a topic with m
partitions refers to the first m partitions of the block.
"""

from __future__ import annotations

from functools import lru_cache

from quafka_proto.codec import encode_items
from quafka_proto.message import Encoded, Message
from quafka_proto.schema.metadata import MetadataResponsePartition

_LEAST = 1_024
_NUMBER = b"\x7f\xfe\xfd\xfc"  # a value that no other field has
_BLOCKS = 8  # kinds of partitions: four forms over all versions, and an epoch or two


class PartitionBlock:
    """Encoded partitions from 0 on; grows to the largest count requested."""

    def __init__(self, one: bytes) -> None:
        """`one` is an encoded partition with `_NUMBER` as its number."""
        self._one = one
        self._count = 0
        self._block = b""

    def __len__(self) -> int:
        """Return the bytes held."""
        return len(self._block)

    def first(self, count: int) -> Encoded:
        """Return partitions 0 to `count` - 1, by reference."""
        if count > self._count:
            self._count = max(_LEAST, 1 << (count - 1).bit_length())
            self._block = _numbered(self._one, self._count)
        return Encoded(count, [memoryview(self._block)[: count * len(self._one)]])


def block_of(
    sample: MetadataResponsePartition, message_type: type[Message], version: int
) -> PartitionBlock:
    """Return the block of partitions that equal the sample but for their number.

    Changes the sample's number.
    """
    sample.partition_index = int.from_bytes(_NUMBER, "big")
    return _block(bytes(encode_items([sample], message_type, version)))


@lru_cache(_BLOCKS)
def _block(one: bytes) -> PartitionBlock:
    return PartitionBlock(one)


def _numbered(one: bytes, count: int) -> bytes:
    """Return `count` copies of a partition, each with its own number."""
    at, size = one.index(_NUMBER), len(one)
    block = bytearray(one * count)
    for place in range(len(_NUMBER)):  # one byte of all the numbers at a time
        block[at + place :: size] = _bytes_of_numbers(count, 8 * (len(_NUMBER) - 1 - place))
    return bytes(block)


def _bytes_of_numbers(count: int, shift: int) -> bytes:
    """Return, for each number below `count`, the byte at `shift` bits from the right."""
    each = 1 << shift
    values = min(256, -(-count // each))
    cycle = b"".join(bytes([value]) * min(each, count) for value in range(values))
    return (cycle * -(-count // len(cycle)))[:count]
