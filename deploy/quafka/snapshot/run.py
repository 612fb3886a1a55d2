"""`quafka snapshot create | list | show | verify | restore | drop`.

Exit codes: 0 done, 1 the snapshot is damaged (verify, restore), 2 failed; stderr has the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from quafka.snapshot.create import create
from quafka.snapshot.output import EXIT_WRONG, reason_of
from quafka.snapshot.restore import restore_snapshot
from quafka.snapshot.show import drop_snapshot, list_snapshots, show, verify
from quafka_broker.partitions.errors import StorageError
from quafka_broker.snapshots.control_socket import ControlError
from quafka_broker.snapshots.create import SnapshotError
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.open_destination import open_destination
from quafka_broker.snapshots.restore import RestoreError
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.wal.errors import DamagedLogError
from quafka_proto.errors import Malformed
from quafka_telemetry.startup import StartupError


def run(options: argparse.Namespace) -> int:
    """Run a subcommand; return the exit code."""
    actions: dict[str, Callable[[argparse.Namespace, Destination], int]] = {
        "create": create, "list": list_snapshots, "show": show, "verify": verify,
        "restore": restore_snapshot, "drop": drop_snapshot,
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
        reason = reason_of(e)
    print(f"quafka: {options.dest}: {reason}", file=sys.stderr)
    return EXIT_WRONG
