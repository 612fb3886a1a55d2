"""Restores a snapshot into an object store, below a new prefix on which brokers then start.

The log is first restored into a local folder, verified and opened there, as for a broker with a
local folder. Then its files are uploaded as objects. The manifest is created last: without it there
is no log below the prefix, and the next restore begins again.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from quafka_broker.snapshots.restore import Progress, Restored, RestoreError, restore
from quafka_broker.wal.disk import TEMPORARY, File, RealDisk
from quafka_objects.errors import ObjectExistsError
from quafka_objects.store import ObjectStore
from quafka_proto import chain_format
from quafka_proto.chain_format import (
    CLUSTER,
    StoredFile,
    directory_path,
    encode_directory,
    file_path,
    segment_nonce,
)
from quafka_proto.cluster_format import ClusterFile, encode_cluster
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    LOG_MAGIC,
    FileHeader,
    check_file_header,
)
from quafka_proto.snapshot_format import SnapshotManifest

_SHARD, _EPOCH = 0, 0
_CHUNK = 8 << 20
_MAGICS = {".log": LOG_MAGIC, ".oidx": INDEX_MAGIC}


def restore_into_store(
    store: ObjectStore,
    manifest: SnapshotManifest,
    into: ObjectStore,
    *,
    org: int | None = None,
    skip_damage: bool = False,
    progress: Progress = lambda _done, _all: None,
    work: Path | None = None,
) -> Restored:
    """Restore a snapshot as the only shard of a new cluster. Blocks.

    Args:
        work: the folder of the temporary local copy; default: the system's temporary folder.

    Raises:
        RestoreError: the restore is impossible, the snapshot is damaged, or there is a log already.
        OSError: a store or the local disk fails.
    """
    path = chain_format.manifest_path(_SHARD)
    if into.exists(path) or into.exists(CLUSTER):
        raise RestoreError(f"{into.where} has a log")
    with tempfile.TemporaryDirectory(prefix="quafka-restore-", dir=work) as folder:
        data = Path(folder) / "data"
        done = restore(store, manifest, data, org=org, skip_damage=skip_damage, progress=progress)
        files = list(_upload(RealDisk(data / "wal"), into))
    listed = directory_path(_SHARD, _EPOCH, secrets.randbits(64))
    into.put(listed, encode_directory(files))
    try:
        into.create(CLUSTER, encode_cluster(ClusterFile(manifest.cluster_id, 1)))
        made = chain_format.ShardManifest(_SHARD, directory=listed)
        into.create(path, chain_format.encode_manifest(made))
    except ObjectExistsError as e:
        raise RestoreError(f"{into.where} has a log meanwhile") from e
    return done


def _upload(disk: RealDisk, into: ObjectStore) -> Iterator[StoredFile]:
    """Upload each file of the log as an object."""
    for name in disk.names():
        if name.endswith(TEMPORARY):
            continue
        file = disk.open(name)
        try:
            size = file.size()
            path = file_path(_SHARD, name, _EPOCH, _nonce(name, file))
            into.put(path, file.read(0, size) if size <= _CHUNK else _chunks(file.read, size))
        finally:
            file.close()
        yield StoredFile(name, path, size)


def _nonce(name: str, file: File) -> int:
    """A random number; that of a segment includes the file's header (see `chain_format`)."""
    nonce = secrets.randbits(64)
    stem, dot, ending = name.rpartition(".")
    magic = _MAGICS.get(dot + ending)
    if magic is None or not stem.isdecimal():
        return nonce
    header: FileHeader | None = None
    with suppress(Malformed):  # damage that the restore may accept
        header = check_file_header(file.read(0, FILE_HEADER_SIZE), magic, int(stem))
    return segment_nonce(nonce, header)


def _chunks(read: Callable[[int, int], bytes], size: int) -> Iterator[bytes]:
    for at in range(0, size, _CHUNK):
        yield read(at, min(_CHUNK, size - at))
