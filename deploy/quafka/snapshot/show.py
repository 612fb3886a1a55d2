"""`quafka snapshot list | show | verify | drop`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from quafka.commands.output import Quantity, facts, size_text, table
from quafka.snapshot.output import EXIT_DAMAGED, EXIT_DONE, EXIT_WRONG, manifest_of, summary_of
from quafka_broker.snapshots.catalog import drop, load, snapshot_ids
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.verify import SnapshotVerification
from quafka_objects.folder import FolderStore
from quafka_proto.errors import Malformed
from quafka_proto.snapshot_format import manifest_path


def list_snapshots(options: argparse.Namespace, store: Destination) -> int:
    """List the snapshots; return the exit code."""
    abouts: list[dict[str, Any]] = []
    faults: list[str] = []
    for snapshot_id in snapshot_ids(store):
        try:
            abouts.append(summary_of(load(store, snapshot_id)))
        except Malformed as e:
            faults.append(str(e))
        except FileNotFoundError:  # dropped by another command meanwhile
            continue
    if options.format == "json":
        for about in abouts:
            print(json.dumps(about))
    elif abouts:
        _print_list(abouts)
    if not abouts and not faults:
        _check_exists(store)
        print(f"quafka: {options.dest}: no snapshots", file=sys.stderr)
    for fault in faults:
        print(f"quafka: {options.dest}: {fault}", file=sys.stderr)
    return EXIT_WRONG if faults else EXIT_DONE


def _check_exists(store: Destination) -> None:
    """Raise FileNotFoundError for a folder that is missing, or a prefix without objects."""
    if isinstance(store, FolderStore):
        if not store.root.is_dir():
            raise FileNotFoundError("there is no such folder")
    elif next(store.list_objects(), None) is None:
        raise FileNotFoundError("nothing is stored there")


def _print_list(abouts: list[dict[str, Any]]) -> None:
    rows = [
        (
            about["id"], about["cut"], about["org"] or "all", about["topics"],
            about["partitions"], about["records"], Quantity(size_text(about["bytes"])),
            about["kept"],
        )
        for about in abouts
    ]  # fmt: skip
    head = ("snapshot", "cut", "org", "topics", "partitions", "records", "log", "kept")
    print(table(head, rows))


def show(options: argparse.Namespace, store: Destination) -> int:
    """Print the content of a snapshot; return the exit code."""
    manifest = manifest_of(options, store)
    if options.format == "json":
        print(store.read(manifest_path(manifest.id)).decode())
        return EXIT_DONE
    about = summary_of(manifest)
    pairs = [(field, about[field]) for field in ("id", "cut", "kept", "bytes")]
    print(facts([*pairs, ("cluster", manifest.cluster_id)]))
    print()
    rows = [
        (
            topic.org, topic.name, partition.partition, partition.log_start,
            partition.high_watermark, partition.last_stable_offset,
            len(partition.open), len(partition.aborted),
            ", ".join(f"{first}-{end - 1}" for first, end in partition.lost),
        )
        for topic in sorted(manifest.topics, key=lambda topic: (topic.org, topic.name))
        for partition in topic.partitions
    ]  # fmt: skip
    head = (
        "org", "topic", "partition", "log start", "high watermark", "last stable", "open",
        "aborted", "lost",
    )  # fmt: skip
    print(table(head, rows))
    print()
    committed = [
        (group.org, group.group, offset.topic, offset.partition, offset.offset)
        for group in sorted(manifest.groups, key=lambda group: (group.org, group.group))
        for offset in sorted(group.offsets, key=lambda at: (at.topic, at.partition))
    ]
    print(table(("org", "group", "topic", "partition", "committed"), committed))
    return EXIT_DONE


def drop_snapshot(options: argparse.Namespace, store: Destination) -> int:
    """Drop a snapshot; return the exit code."""
    if options.id not in snapshot_ids(store):  # checked first: the lock would create DEST
        raise FileNotFoundError(f"there is no snapshot {options.id}")
    with store.locked() as lock:
        freed = drop(store, lock, options.id)
    if options.format == "json":
        print(json.dumps({"dropped": options.id, "freed": freed}))
    else:
        print(f"snapshot {options.id} dropped, {size_text(freed)} freed")
    return EXIT_DONE


def verify(options: argparse.Namespace, store: Destination) -> int:
    """Read a whole snapshot and print its faults; return the exit code."""
    manifest = manifest_of(options, store)
    verification = SnapshotVerification(store, manifest)
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
