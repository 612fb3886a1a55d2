"""Consumer groups in one storm after the other (`tests.support.storm`), by clients of all kinds.

kcat and the console consumer are not among them: they commit what they are about to print, so that
killing them skips a record whatever the server does.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support import kafkajs
from tests.support.cluster import Cluster
from tests.support.group_members import GROUPS
from tests.support.needs import find
from tests.support.storm import blow
from tests.support.worker import MEMBERS

_STORM_SECONDS = 60.0


def soak(seconds: float, seed: int) -> bool:
    """Storms for so many seconds in all, each on a cluster of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        kinds, script = list(MEMBERS), None
        if find("npm") and find("node"):
            kinds, script = [*kinds, "kafkajs"], kafkajs.installed() / "worker.js"
        else:
            print("without kafkajs: node and npm are not installed")
        left = seconds
        while left > 0:
            length = min(left, _STORM_SECONDS)
            left -= length
            folder = Path(scratch) / f"storm-{seed}"
            folder.mkdir()
            try:
                with Cluster(folder, broker_args=GROUPS) as cluster:
                    done = blow(
                        cluster, folder, kinds, length, kill_every=7, seed=seed, script=script
                    )
            except AssertionError as e:
                print(f"  PROBLEM in storm {seed}: {e}", file=sys.stderr)
                return False
            print(f"  storm {seed}: {dict(done)}", flush=True)
            seed += 1
    return True
