"""Which epochs of a shard this process, or an earlier run of this broker, has begun. Pure.

A manifest that names this broker as the owner is no proof of that: another process may use the same
node key, as on a copied machine. Two such processes would take every shard from each other again
and again.
"""

from __future__ import annotations

from quafka_proto.chain_format import Owner, ShardManifest


class OwnEpochs:
    """For the shards of one cluster, as one process sees them."""

    def __init__(self, me: Owner) -> None:
        self._me = me
        self._own: dict[int, int] = {}

    def see(self, shard: int, manifest: ShardManifest | None) -> None:
        """The manifest was read: what is there at first is of an earlier run."""
        self._own.setdefault(shard, 0 if manifest is None else manifest.epoch)

    def begin(self, shard: int, epoch: int) -> None:
        """This process has begun this epoch, or may have."""
        self._own[shard] = epoch

    def is_own(self, shard: int, manifest: ShardManifest) -> bool:
        """Whether a manifest with this broker as the owner is of this process or an earlier run:
        then nobody serves the shard, unless this process does."""
        return self._is_named(manifest) and not self.rival(shard, manifest)

    def rival(self, shard: int, manifest: ShardManifest) -> str:
        """The address of another process that has the shard by the same node key; empty: none."""
        owner, epoch = manifest.owner, manifest.epoch
        if owner is None or owner.node != self._me.node or owner.address == self._me.address:
            return ""
        return "" if epoch == self._own.get(shard) else owner.address

    def was_there(self, shard: int) -> bool:
        """Whether this process has ever seen a manifest of the shard, or made one."""
        return self._own.get(shard, 0) > 0

    def _is_named(self, manifest: ShardManifest) -> bool:
        return manifest.owner is not None and manifest.owner.node == self._me.node
