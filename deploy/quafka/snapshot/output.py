"""The output that the subcommands of `quafka snapshot` share, and their exit codes."""

from __future__ import annotations

import argparse
import time
from typing import Any

from quafka_broker.snapshots.catalog import expired, load, snapshot_ids
from quafka_broker.snapshots.destination import Destination
from quafka_proto.snapshot_format import SnapshotManifest

EXIT_DONE, EXIT_DAMAGED, EXIT_WRONG = 0, 1, 2


def manifest_of(options: argparse.Namespace, store: Destination) -> SnapshotManifest:
    """The manifest of the snapshot that the options name; the latest by default."""
    if options.id is not None:
        return load(store, options.id)
    ids = snapshot_ids(store)
    if not ids:
        raise FileNotFoundError("no snapshots")
    return load(store, ids[-1])


def summary_of(manifest: SnapshotManifest) -> dict[str, Any]:
    """A snapshot in a few fields, for people and as JSON."""
    partitions = [partition for topic in manifest.topics for partition in topic.partitions]
    until = manifest.lease_until_ms
    return {
        "id": manifest.id,
        "cut": time_text(manifest.cut_ms),
        "org": manifest.org,
        "topics": len(manifest.topics),
        "partitions": len(partitions),
        "records": sum(
            p.copied if p.copied >= 0 else p.high_watermark - p.log_start for p in partitions
        ),
        "bytes": sum(piece.length for piece in manifest.pieces),
        "groups": len(manifest.groups),
        "kept": "until dropped" if until is None
        else f"until {time_text(until)}" + (" (expired)" if expired(manifest) else ""),
    }  # fmt: skip


def incomplete(manifest: SnapshotManifest) -> list[tuple[str, int]]:
    """The partitions stored by another system of which records are missing."""
    return [
        (topic.name, partition.partition)
        for topic in manifest.topics
        for partition in topic.partitions
        if partition.copied >= 0 and partition.lost
    ]


def reason_of(error: Exception) -> str:
    """An error's text for the end of a sentence."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def time_text(ms: int) -> str:
    """A time in ms, as UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(ms / 1000))
