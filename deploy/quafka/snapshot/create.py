"""`quafka snapshot create`: from a data folder, or from a broker over the mesh."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from quafka.commands.output import size_text
from quafka.progress import ProgressLine
from quafka.snapshot.output import EXIT_DONE, incomplete, reason_of, summary_of
from quafka_broker.snapshots.create import Created, Creation, SnapshotError
from quafka_broker.snapshots.cut import Cut
from quafka_broker.snapshots.cut_files import CutFiles
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.local_cut import local_cut
from quafka_broker.snapshots.stored_log_snapshot import has_log, snapshot_in_store
from quafka_loop import clock
from quafka_mesh_ops.node_ids import parse_node_id
from quafka_mesh_ops.settings import split_address
from quafka_proto.snapshot_format import SnapshotManifest

_NICE = 10  # clients of a broker on this machine come first


def create(options: argparse.Namespace, store: Destination) -> int:
    """Create a snapshot; return the exit code."""
    begun = clock.monotonic()
    made = _in_place(options, store) if has_log(store) else _of_a_broker(options, store)
    took = clock.monotonic() - begun
    if options.format == "json":
        print(json.dumps({**summary_of(made.manifest), **_work(made, took)}))
    else:
        about = summary_of(made.manifest)
        print(
            f"snapshot {made.manifest.id}: {about['topics']} topics, {about['records']} records, "
            f"{size_text(about['bytes'])} of log; {size_text(made.written)} written, "
            f"{made.linked} files linked, {made.reused} pieces reused, in {took:.2f} s"
        )
    for topic, partition in incomplete(made.manifest):
        print(
            f"not copied completely: {topic}-{partition}, whose records are in Redis; the reason "
            "is in the broker's log",
            file=sys.stderr,
        )
    if options.format == "parquet":
        _export(options.dest, made.manifest, options.isolation)
    return EXIT_DONE


def _in_place(options: argparse.Namespace, store: Destination) -> Created:
    """A snapshot of the log that is kept below DEST."""
    if options.org is not None or options.broker is not None:
        raise SnapshotError(
            "a log is stored below it, whose snapshots include all orgs and need no broker; "
            "name another DEST with --broker or --org"
        )
    with store.locked() as lock:
        return snapshot_in_store(store, lock, lease_seconds=options.lease)


def _of_a_broker(options: argparse.Namespace, store: Destination) -> Created:
    """A snapshot of a broker's log, with a copy of what DEST lacks."""
    taken = _cut(options)  # checks the options before anything is created
    with _out_of_the_way(), store.locked() as lock, taken as (cut, source):
        progress = ProgressLine("copying")
        creation = Creation(
            store, source, cut, org=options.org, lease_seconds=options.lease, progress=progress.show
        )
        try:
            return creation.run(lock)
        finally:
            progress.end()


def _export(dest: str, manifest: SnapshotManifest, isolation: str) -> None:
    """Write the snapshot's topics as Parquet files, below DEST/parquet."""
    try:
        from pyspark_quafka.errors import QuafkaError
        from pyspark_quafka.parquet import export_parquet
    except ImportError as e:
        raise SnapshotError("--format parquet needs `pip install 'quafka[spark]'`") from e
    orgs = {topic.org for topic in manifest.topics}
    if len(orgs) > 1:
        raise SnapshotError(
            f"the snapshot was created, but Parquet is exported for one org and it has the orgs "
            f"{sorted(orgs)}; use --org"
        )
    begun = clock.monotonic()
    progress = ProgressLine("exporting")
    try:
        done = export_parquet(
            dest, f"{dest}/parquet", as_of=manifest.id, org=min(orgs, default=1),
            isolation=isolation, progress=progress.show,
        )  # fmt: skip
    except (QuafkaError, OSError) as e:
        raise SnapshotError(
            f"the snapshot was created, but its Parquet export failed: {reason_of(e)}"
        ) from e
    finally:
        progress.end()
    print(
        f"parquet/{done.folder}: {len(done.files)} files, {done.records} records, "
        f"{size_text(done.written)}, in {clock.monotonic() - begun:.2f} s"
    )


@contextmanager
def _out_of_the_way() -> Generator[None]:
    """Lower this process's priority below that of a broker on this machine."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.nice(_NICE)
    try:
        yield
    finally:
        with suppress(PermissionError):  # only root may raise it; only tests run on after this
            os.setpriority(os.PRIO_PROCESS, 0, before)


def _cut(options: argparse.Namespace) -> AbstractContextManager[tuple[Cut, CutFiles]]:
    if options.broker is not None:
        return _remote_cut(options)
    if options.broker_id is not None:
        raise SnapshotError("--broker-id needs --broker, the mesh address of a remote broker")
    if not (options.data / "wal").is_dir():
        raise FileNotFoundError(f"{options.data} has no log; --data must be a broker's data folder")
    return local_cut(options.data)


def _remote_cut(options: argparse.Namespace) -> AbstractContextManager[tuple[Cut, CutFiles]]:
    from quafka_broker.snapshots.remote_cut import Remote, remote_cut

    try:
        split_address(options.broker)
    except ValueError as e:
        raise SnapshotError(f"--broker must be host:port, not {options.broker!r}") from e
    if options.broker_id is None:
        raise SnapshotError("--broker needs --broker-id, which `quafka node id` prints")
    try:
        broker_id = parse_node_id(options.broker_id)
    except ValueError as e:
        raise SnapshotError(f"--broker-id: {e}") from e
    return remote_cut(Remote(options.broker, options.node_key, broker_id), options.org)


def _work(made: Created, took: float) -> dict[str, Any]:
    return {
        "written": made.written, "linked": made.linked, "reused": made.reused,
        "seconds": round(took, 3),
    }  # fmt: skip
