"""`quafka snapshot create | list | show | verify | restore | drop`.

Exit codes: 0 done, 1 the snapshot is damaged (verify, restore), 2 failed; stderr has the reason.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from quafka.commands.output import Quantity, facts, table
from quafka_broker.partitions.errors import StorageError
from quafka_broker.snapshots.catalog import drop, expired, load, snapshot_ids
from quafka_broker.snapshots.control_socket import ControlError
from quafka_broker.snapshots.create import Created, Creation, SnapshotError
from quafka_broker.snapshots.cut import Cut
from quafka_broker.snapshots.cut_files import CutFiles
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.local_cut import local_cut
from quafka_broker.snapshots.open_destination import open_destination
from quafka_broker.snapshots.restore import DamagedSnapshotError, Restored, RestoreError, restore
from quafka_broker.snapshots.verify import Verification
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.wal.errors import DamagedLogError
from quafka_mesh_ops.identity import parse_node_id
from quafka_mesh_ops.settings import split_address
from quafka_proto.errors import Malformed
from quafka_proto.snapshot_format import Manifest, manifest_path
from quafka_telemetry.startup import StartupError

EXIT_DONE, EXIT_DAMAGED, EXIT_WRONG = 0, 1, 2
_PROGRESS_SECONDS = 1.0
_NICE = 10  # clients of a broker on this machine come first


def run(options: argparse.Namespace) -> int:
    """Run a subcommand; return the exit code."""
    actions: dict[str, Callable[[argparse.Namespace, Destination], int]] = {
        "create": _create, "list": _list, "show": _show, "verify": _verify,
        "restore": _restore, "drop": _drop,
    }  # fmt: skip
    try:
        return actions[options.action](options, open_destination(options.dest))
    except BrokenPipeError:
        raise  # handled in `cli.main`; the snapshot is not concerned
    except BlockingIOError:
        reason = "another snapshot command is running there"
    except (
        OSError, Malformed, ControlError, SnapshotError, StartupError, DamagedLogError,
        BadRegistryError, StorageError, RestoreError,
    ) as e:  # fmt: skip
        reason = _reason(e)
    print(f"quafka: {options.dest}: {reason}", file=sys.stderr)
    return EXIT_WRONG


def _reason(error: Exception) -> str:
    """An error's text for the end of a sentence."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


# --- create -----------------------------------------------------------------------------------


def _create(options: argparse.Namespace, store: Destination) -> int:
    begun = time.monotonic()
    taken = _cut(options)  # checks the options before anything is created
    with _out_of_the_way(), store.locked() as lock, taken as (cut, source):
        progress = _Progress(sys.stderr.isatty())
        creation = Creation(
            store, source, cut, org=options.org, lease_seconds=options.lease, progress=progress.show
        )
        try:
            made = creation.run(lock)
        finally:
            progress.end()
    took = time.monotonic() - begun
    if options.format == "json":
        print(json.dumps({**_about(made.manifest), **_work(made, took)}))
    else:
        about = _about(made.manifest)
        print(
            f"snapshot {made.manifest.id}: {about['topics']} topics, {about['records']} records, "
            f"{_size(about['bytes'])} of log; {_size(made.written)} written, {made.linked} files "
            f"linked, {made.reused} pieces reused, in {took:.2f} s"
        )
    if options.format == "parquet":
        _export(options.dest, made.manifest)
    return EXIT_DONE


def _export(dest: str, manifest: Manifest) -> None:
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
    begun = time.monotonic()
    progress = _Progress(sys.stderr.isatty())
    try:
        done = export_parquet(
            dest, f"{dest}/parquet", as_of=manifest.id, org=min(orgs, default=1),
            progress=progress.show,
        )  # fmt: skip
    except (QuafkaError, OSError) as e:
        raise SnapshotError(
            f"the snapshot was created, but its Parquet export failed: {_reason(e)}"
        ) from e
    finally:
        progress.end()
    print(
        f"parquet/{done.folder}: {len(done.files)} files, {done.records} records, "
        f"{_size(done.written)}, in {time.monotonic() - begun:.2f} s"
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


class _Progress:
    """A progress line that overwrites itself; shown on a terminal only."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._next = time.monotonic() + _PROGRESS_SECONDS
        self._shown = False

    def show(self, done: int, of: int) -> None:
        """Report that `done` bytes of `of` are done."""
        if self._wanted and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            self._shown = True
            share = 100 * done // max(of, 1)
            print(f"\r{share:3d}%  {_size(done)} of {_size(of)}   ", end="", file=sys.stderr)

    def end(self) -> None:
        """End the line."""
        if self._shown:
            print(file=sys.stderr)


# --- list, show, drop -------------------------------------------------------------------------


def _list(options: argparse.Namespace, store: Destination) -> int:
    abouts: list[dict[str, Any]] = []
    faults: list[str] = []
    for snapshot_id in snapshot_ids(store):
        try:
            abouts.append(_about(load(store, snapshot_id)))
        except Malformed as e:
            faults.append(str(e))
        except FileNotFoundError:  # dropped by another command meanwhile
            continue
    if options.format == "json":
        for about in abouts:
            print(json.dumps(about))
    elif abouts:
        _print_list(abouts)
    elif not faults:
        print(f"quafka: {options.dest}: no snapshots", file=sys.stderr)
    for fault in faults:
        print(f"quafka: {options.dest}: {fault}", file=sys.stderr)
    return EXIT_WRONG if faults else EXIT_DONE


def _print_list(abouts: list[dict[str, Any]]) -> None:
    rows = [
        (
            about["id"], about["cut"], about["org"] or "all", about["topics"],
            about["partitions"], about["records"], Quantity(_size(about["bytes"])), about["kept"],
        )
        for about in abouts
    ]  # fmt: skip
    head = ("snapshot", "cut", "org", "topics", "partitions", "records", "log", "kept")
    print(table(head, rows))


def _show(options: argparse.Namespace, store: Destination) -> int:
    manifest = _named(options, store)
    if options.format == "json":
        print(store.read(manifest_path(manifest.id)).decode())
        return EXIT_DONE
    about = _about(manifest)
    pairs = [(field, about[field]) for field in ("id", "cut", "kept", "bytes")]
    print(facts([*pairs, ("cluster", manifest.cluster_id)]))
    print()
    rows = [
        (
            topic.org, topic.name, partition.partition, partition.log_start,
            partition.high_watermark, partition.last_stable_offset,
            ", ".join(f"{first}-{end - 1}" for first, end in partition.lost),
        )
        for topic in sorted(manifest.topics, key=lambda topic: (topic.org, topic.name))
        for partition in topic.partitions
    ]  # fmt: skip
    head = ("org", "topic", "partition", "log start", "high watermark", "last stable", "lost")
    print(table(head, rows))
    print()
    committed = [
        (group.org, group.group, offset.topic, offset.partition, offset.offset)
        for group in sorted(manifest.groups, key=lambda group: (group.org, group.group))
        for offset in sorted(group.offsets, key=lambda at: (at.topic, at.partition))
    ]
    print(table(("org", "group", "topic", "partition", "committed"), committed))
    return EXIT_DONE


def _drop(options: argparse.Namespace, store: Destination) -> int:
    if options.id not in snapshot_ids(store):  # checked first: the lock would create DEST
        raise FileNotFoundError(f"there is no snapshot {options.id}")
    with store.locked() as lock:
        freed = drop(store, lock, options.id)
    if options.format == "json":
        print(json.dumps({"dropped": options.id, "freed": freed}))
    else:
        print(f"snapshot {options.id} dropped, {_size(freed)} freed")
    return EXIT_DONE


def _named(options: argparse.Namespace, store: Destination) -> Manifest:
    if options.id is not None:
        return load(store, options.id)
    ids = snapshot_ids(store)
    if not ids:
        raise FileNotFoundError("no snapshots")
    return load(store, ids[-1])


def _about(manifest: Manifest) -> dict[str, Any]:
    partitions = [partition for topic in manifest.topics for partition in topic.partitions]
    until = manifest.lease_until_ms
    return {
        "id": manifest.id,
        "cut": _time(manifest.cut_ms),
        "org": manifest.org,
        "topics": len(manifest.topics),
        "partitions": len(partitions),
        "records": sum(p.high_watermark - p.log_start for p in partitions),
        "bytes": sum(piece.length for piece in manifest.pieces),
        "groups": len(manifest.groups),
        "kept": "until dropped" if until is None
        else f"until {_time(until)}" + (" (expired)" if expired(manifest) else ""),
    }  # fmt: skip


# --- verify -----------------------------------------------------------------------------------


def _verify(options: argparse.Namespace, store: Destination) -> int:
    manifest = _named(options, store)
    verification = Verification(store, manifest)
    whole = True
    text = options.format == "text"
    if text:
        print(f"{'segment':>12} {'bytes':>14} {'entries':>10}  state")
    for report in verification.pieces():
        whole = whole and not report.faults
        piece = report.piece
        if text:
            first, *others = report.faults or ["whole"]
            print(f"{piece.number:>12} {piece.length:>14} {report.entries:>10}  {first}")
            for fault in others:
                print(f"{'':>40}{fault}")
        else:
            about = {"segment": piece.number, "bytes": piece.length, "entries": report.entries}
            print(json.dumps({**about, "faults": report.faults}))
    missing = verification.missing()
    for fault in missing:
        print(fault if text else json.dumps({"missing": fault}))
    whole = whole and not missing
    print(f"snapshot {manifest.id} is {'whole' if whole else 'damaged'}", file=sys.stderr)
    return EXIT_DONE if whole else EXIT_DAMAGED


# --- restore ----------------------------------------------------------------------------------


def _restore(options: argparse.Namespace, store: Destination) -> int:
    begun = time.monotonic()
    progress = _Progress(sys.stderr.isatty())
    try:
        with _quiet_log():
            done = restore(
                store, _named(options, store), options.data, org=options.org,
                skip_damage=options.damaged == "skip", progress=progress.show,
            )  # fmt: skip
    except DamagedSnapshotError as e:
        progress.end()
        _complain(e.faults)
        print(
            f"quafka: {options.dest}: {e}; --damaged skip restores the undamaged records",
            file=sys.stderr,
        )
        return EXIT_DAMAGED
    finally:
        progress.end()
    _complain(done.faults)
    _print_restored(options, done, time.monotonic() - begun)
    return EXIT_DAMAGED if done.faults else EXIT_DONE


@contextmanager
def _quiet_log() -> Generator[None]:
    """Hide the broker's log lines: a missing checkpoint or epoch file is normal in a restore."""
    log = logging.getLogger("quafka.broker")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _print_restored(options: argparse.Namespace, done: Restored, took: float) -> None:
    about = {**_about(done.manifest), "org": options.org or done.manifest.org, "bytes": done.bytes}
    if options.format == "json":
        print(json.dumps({**about, "faults": done.faults, "seconds": round(took, 3)}))
        return
    print(
        f"snapshot {about['id']} of {about['cut']} restored into {options.data}: "
        f"{about['topics']} topics, {about['records']} records, {about['groups']} groups, "
        f"{_size(done.bytes)} of log, in {took:.2f} s"
    )


def _complain(faults: list[str]) -> None:
    for fault in faults:
        print(fault, file=sys.stderr)


# --- formatting -------------------------------------------------------------------------------


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(ms / 1000))
