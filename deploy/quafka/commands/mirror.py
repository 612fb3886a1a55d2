"""`quafka mirror`: copies topics to another cluster continuously, until it is stopped."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from quafka.commands.copy_sides import sides
from quafka.commands.options import UsageError
from quafka.commands.output import moment, plain, size_text
from quafka.commands.run import EXIT_DONE, complain, guarded
from quafka.copying.job import Job
from quafka.copying.mirror import Mirror, MirrorPlan, MirrorStatus, Stop


def run(options: argparse.Namespace) -> int:
    """Mirror until stopped; return the exit code."""
    return guarded(lambda: _mirror(options))


def _mirror(options: argparse.Namespace) -> int:
    source, target = sides(options)
    if source.bootstrap == target.bootstrap and not options.prefix:
        raise UsageError("source and target are the same cluster; --prefix names the copies")
    job = Job(
        f"quafka-mirror.{options.name}", source, target, with_configs=not options.no_configs,
        appends=options.append, compression=options.compression,
    )  # fmt: skip
    plan = MirrorPlan(
        options.topic, options.exclude, options.group, options.prefix,
        commit_seconds=options.commit_interval, refresh_seconds=options.refresh_interval,
        groups_seconds=options.groups_interval, status_seconds=options.status_interval,
    )  # fmt: skip
    told = _Told(options.format == "json")
    with Stop() as stop:
        Mirror(job, plan, told.tell, stop).run()
    return EXIT_DONE


class _Told:
    """Prints each status, and each problem once while it lasts."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._problems: list[str] = []

    def tell(self, status: MirrorStatus) -> None:
        if self._as_json:
            print(json.dumps(asdict(status), ensure_ascii=False))
        else:
            print(text(status))
        sys.stdout.flush()  # a service's log is a pipe
        for problem in status.problems:
            if problem not in self._problems and not self._as_json:
                complain(problem)
        self._problems = list(status.problems)


def text(status: MirrorStatus) -> str:
    """A status in one line."""
    parts = [
        f"{moment(status.time_ms)} {status.state}",
        f"{status.topics} topics, {status.partitions} partitions",
        f"{status.records} records ({size_text(status.bytes)}) copied, {status.rate:.0f}/s",
        f"{status.lag} behind",
    ]
    if status.groups:
        parts.append(f"{status.groups} groups")
    if status.lost:
        parts.append(f"{status.lost} offsets deleted before they were copied")
    return plain("; ".join(parts))
