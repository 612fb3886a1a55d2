"""`quafka snapshot restore`: a data folder for a new broker, or a log in an object store."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from quafka.commands.output import size_text
from quafka.logs import broker_logs_from
from quafka.progress import ProgressLine
from quafka.snapshot.output import EXIT_DAMAGED, EXIT_DONE, manifest_of, summary_of
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.restore import DamagedSnapshotError, Restored, restore
from quafka_broker.snapshots.restore_into_store import restore_into_store
from quafka_loop import clock
from quafka_objects.address import open_store


def restore_snapshot(options: argparse.Namespace, store: Destination) -> int:
    """Restore a snapshot into a new data folder; return the exit code."""
    begun = clock.monotonic()
    progress = ProgressLine("restoring")
    try:
        # A missing checkpoint or epoch file is normal in a restore.
        with broker_logs_from(logging.CRITICAL):
            done = _restore(options, store, progress)
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
    _print_restored(options, done, clock.monotonic() - begun)
    return EXIT_DAMAGED if done.faults else EXIT_DONE


def _restore(options: argparse.Namespace, store: Destination, progress: ProgressLine) -> Restored:
    manifest, skip = manifest_of(options, store), options.damaged == "skip"
    if "://" not in options.data:
        return restore(
            store, manifest, Path(options.data), org=options.org, skip_damage=skip,
            progress=progress.show,
        )  # fmt: skip
    return restore_into_store(
        store, manifest, open_store(options.data), org=options.org, skip_damage=skip,
        progress=progress.show,
    )  # fmt: skip


def _print_restored(options: argparse.Namespace, done: Restored, took: float) -> None:
    org = options.org or done.manifest.org
    about = {**summary_of(done.manifest), "org": org, "bytes": done.bytes}
    if options.format == "json":
        print(json.dumps({**about, "faults": done.faults, "seconds": round(took, 3)}))
        return
    print(
        f"snapshot {about['id']} of {about['cut']} restored into {options.data}: "
        f"{about['topics']} topics, {about['records']} records, {about['groups']} groups, "
        f"{size_text(done.bytes)} of log, in {took:.2f} s"
    )


def _complain(faults: list[str]) -> None:
    for fault in faults:
        print(fault, file=sys.stderr)
