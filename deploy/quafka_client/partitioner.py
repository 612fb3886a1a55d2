"""The partition of a key, as Kafka's own producers choose it."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_SEED, _M = 0x9747B28C, 0x5BD1E995


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that the Java producer writes a key to."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The hash of Kafka's `Utils.murmur2`, as an unsigned number of 32 bits."""
    h = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
