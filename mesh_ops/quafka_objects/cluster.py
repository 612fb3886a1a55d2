"""The description of a cluster in its object store: its brokers, and the owner of each shard."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_objects.errors import ObjectExistsError, ObjectNotFoundError
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import (
    BROKERS,
    CLUSTER,
    MANIFESTS,
    ShardManifest,
    decode_manifest,
    manifest_path,
)
from quafka_proto.cluster_format import (
    ClusterFile,
    Registration,
    decode_cluster,
    decode_registration,
    encode_cluster,
)
from quafka_proto.errors import Malformed

_MOST_BROKERS = 1_000


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The current description of a cluster. `manifests`: by shard; None: never owned."""

    cluster: ClusterFile
    manifests: list[ShardManifest | None]
    brokers: list[Registration]


def read_cluster(store: ObjectStore) -> ClusterFile | None:
    """The cluster, or None if there is none.

    Raises:
        OSError: the store cannot be read.
        Malformed: the description is bad.
    """
    try:
        return decode_cluster(store.read(CLUSTER))
    except ObjectNotFoundError:
        return None


def create_cluster(store: ObjectStore, new: ClusterFile) -> ClusterFile:
    """The cluster; `new` if there was none. Raises as `read_cluster`.

    Shards without a description are refused: with another number of shards, topics would be looked
    up in the wrong shard.
    """
    found = read_cluster(store)
    if found is None:
        if any(True for _ in store.list_objects(MANIFESTS)) and read_cluster(store) is None:
            raise Malformed(f"there are shards, but the object {CLUSTER!r} is missing")
        try:
            store.create(CLUSTER, encode_cluster(new))
        except ObjectExistsError:
            return create_cluster(store, new)  # another broker was faster
        return new
    return found


def read_owner(store: ObjectStore, shard: int) -> ShardManifest | None:
    """The manifest of a shard, or None if it was never owned. Raises as `read_cluster`."""
    try:
        return decode_manifest(store.read(manifest_path(shard)), shard)
    except ObjectNotFoundError:
        return None


def read_brokers(store: ObjectStore) -> list[Registration]:
    """All registrations, including those of killed brokers. Raises OSError."""
    found: list[Registration] = []
    for item in store.list_objects(BROKERS):
        name = item.path.rpartition("/")[2]
        if name.startswith(".") or len(found) >= _MOST_BROKERS:
            continue  # an interrupted write
        try:
            each = decode_registration(store.read(item.path))
        except (ObjectNotFoundError, Malformed):
            continue  # deleted since, or of another version
        if each.node == name:
            found.append(each)
    return found


def read_state(store: ObjectStore) -> ClusterState | None:
    """The whole description, or None if there is no cluster. Raises as `read_cluster`."""
    cluster = read_cluster(store)
    if cluster is None:
        return None
    manifests = [read_owner(store, shard) for shard in range(cluster.shards)]
    return ClusterState(cluster, manifests, read_brokers(store))
