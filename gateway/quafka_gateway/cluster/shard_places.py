"""Where the shards of the cluster are, merged from the maps of brokers and the store. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quafka_mesh_ops.ops.cluster import ClusterMapResp, ShardOwner


class ShardPlaces:
    """The owners of the shards, as this gateway has learnt them.

    Brokers learn of a move one after the other, so an answer may be older than one before it: the
    owner with the higher epoch is the newer one, and a release comes after the ownership that it
    ends, in the same epoch.
    """

    def __init__(self, first: ClusterMapResp) -> None:
        self.cluster_id = first.cluster_id
        self.by_name = first.by_name
        """See `ClusterMapResp`."""
        self._owners = list(first.shards)
        self._brokers = tuple(first.brokers)
        self.moves = 0
        """Shards that have got another owner since the start."""

    def __len__(self) -> int:
        """The number of shards."""
        return len(self._owners)

    def __iter__(self) -> Iterator[ShardOwner]:
        return iter(self._owners)

    def learn(self, heard: ClusterMapResp) -> list[int]:
        """Merge a map; returns the numbers of the shards whose owner has changed.

        Raises:
            ValueError: it is of another cluster.
        """
        if (heard.cluster_id, len(heard.shards)) != (self.cluster_id, len(self._owners)):
            raise ValueError(
                f"cluster {heard.cluster_id!r} with {len(heard.shards)} shards is not "
                f"{self.cluster_id!r} with {len(self._owners)}"
            )
        self._brokers = tuple(heard.brokers)
        changed: list[int] = []
        for number, (old, new) in enumerate(zip(self._owners, heard.shards, strict=True)):
            if _age(new) >= _age(old) and new != old:
                self._owners[number] = new
                if (new.node, new.address) != (old.node, old.address):
                    changed.append(number)
                    self.moves += bool(new.node)
        return changed

    def nodes(self) -> set[str]:
        """The node ids of all brokers that a map has named."""
        owners = {owner.node for owner in self._owners if owner.node}
        return owners | {broker.node for broker in self._brokers}

    def addresses(self) -> Iterable[str]:
        """The addresses of the brokers, each once."""
        found = [broker.address for broker in self._brokers if not broker.draining]
        return dict.fromkeys([*found, *(owner.address for owner in self._owners if owner.node)])


def _age(owner: ShardOwner) -> tuple[int, bool]:
    return owner.epoch, not owner.node
