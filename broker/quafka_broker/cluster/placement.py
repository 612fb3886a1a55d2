"""Which broker should have which shard: rendezvous hashing with an even load. Pure.

Every broker computes the same placement from the same facts. While their facts differ, two of them
may want a shard: the compare and swap of its manifest decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from blake3 import blake3

NOBODY = ""


def weight(shard: int, node: str) -> bytes:
    """How much a broker attracts a shard."""
    return blake3(f"{shard}/{node}".encode()).digest()


def ranked(shard: int, nodes: Collection[str]) -> list[str]:
    """Brokers by how much they attract a shard, the strongest first."""
    return sorted(nodes, key=lambda node: (weight(shard, node), node), reverse=True)


def placement(
    shards: int, nodes: Collection[str], declined: Collection[tuple[int, str]] = ()
) -> list[str]:
    """The broker of each shard; NOBODY where there is none.

    Of the brokers with room, a shard goes to the one that attracts it most; no broker has more than
    its share, rounded up. When a broker joins or leaves, most shards stay where they are.

    Args:
        declined: shards, each with a broker that has not taken it.
    """
    room = Counter(dict.fromkeys(nodes, -(-shards // len(nodes)) if nodes else 0))
    found: list[str] = []
    for shard in range(shards):
        able = [node for node in ranked(shard, nodes) if (shard, node) not in declined]
        chosen = next((node for node in able if room[node] > 0), able[0] if able else NOBODY)
        room[chosen] -= 1
        found.append(chosen)
    return found
