"""`python -m quafka_broker.snapshots.due_snapshot DATA DEST CLUSTER_ID INTERVAL_MS KEEP`: makes a
snapshot if one is due, next to the broker that runs in DATA, and drops all but the newest KEEP.

Prints {"made": whether one was due, "id": …, "cut_ms": …} of the newest snapshot. On a failure it
exits with 1 and one line on stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from quafka_broker.partitions.errors import StorageError
from quafka_broker.snapshots.catalog import drop, load_all
from quafka_broker.snapshots.control_socket import ControlError
from quafka_broker.snapshots.create import Creation, SnapshotError
from quafka_broker.snapshots.destination import Destination, Lock
from quafka_broker.snapshots.local_cut import local_cut
from quafka_broker.snapshots.open_destination import open_destination
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.wal.errors import DamagedLogError
from quafka_loop import clock
from quafka_proto.errors import Malformed
from quafka_proto.snapshot_format import SnapshotManifest
from quafka_telemetry.startup import StartupError

_NICE = 10
_ERRORS = (
    OSError, Malformed, SnapshotError, ControlError, StartupError, DamagedLogError,
    BadRegistryError, StorageError,
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    data, dest, cluster_id, interval_ms, keep = arguments
    os.nice(_NICE)
    try:
        made, newest = make_due(
            Path(data), open_destination(dest), cluster_id, int(interval_ms), int(keep)
        )
    except BlockingIOError:
        sys.stderr.write("another snapshot command holds the lock of DEST\n")
        return 1
    except _ERRORS as e:
        sys.stderr.write((str(e).replace("\n", " ") or type(e).__name__) + "\n")
        return 1
    sys.stdout.write(json.dumps({"made": made, "id": newest.id, "cut_ms": newest.cut_ms}))
    return 0


def make_due(
    data: Path, store: Destination, cluster_id: str, interval_ms: int, keep: int
) -> tuple[bool, SnapshotManifest]:
    """Make a snapshot if the newest is older than the interval; returns whether, and the newest.

    Raises:
        BlockingIOError: another command is working on DEST.
        OSError, Malformed, SnapshotError, ControlError, StartupError: the snapshot cannot be made.
    """
    now_ms = clock.time_ns() // 1_000_000
    whole = [m for m in load_all(store) if m.org is None and m.cluster_id == cluster_id]
    if whole and 0 <= now_ms - whole[-1].cut_ms < interval_ms:
        return False, whole[-1]
    with store.locked() as lock, local_cut(data) as (cut, files):
        made = Creation(store, files, cut, scheduled=True).run(lock).manifest
        drop_oldest(store, lock, keep)
    return True, made


def drop_oldest(store: Destination, lock: Lock, keep: int) -> None:
    """Drop all but the newest `keep` scheduled snapshots. Those made by commands are kept.

    Raises:
        OSError, Malformed: see `drop`.
    """
    scheduled = [manifest.id for manifest in load_all(store) if manifest.scheduled]
    for snapshot_id in scheduled[:-keep]:
        drop(store, lock, snapshot_id)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
