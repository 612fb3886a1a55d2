"""`quafka topics copy`: a topic's records, within a cluster or to another one, exactly once."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from quafka.commands.copy_sides import sides
from quafka.commands.options import UsageError
from quafka.commands.output import as_json, plain, size_text, table
from quafka.commands.run import EXIT_DONE, EXIT_FAILED, complain, guarded
from quafka.copying.groups import Translated, translate
from quafka.copying.job import CopiedPartition, Job, partitions_of, reach
from quafka.copying.mirror import Stop
from quafka.copying.session import CopySession
from quafka.exit_codes import EXIT_INTERRUPTED
from quafka.progress import RECORDS, ProgressLine
from quafka_loop import clock

_COMMIT_SECONDS = 2.0
_RUNS = 1 << 20
"""So many runs of offsets are remembered for each partition: more than most topics have."""


def run(options: argparse.Namespace) -> int:
    """Copy; return the exit code."""
    return guarded(lambda: _copy(options))


def _copy(options: argparse.Namespace) -> int:
    name = options.destination or options.source
    if options.to is None and name == options.source:
        raise UsageError("name the copy, or another cluster: `topics copy SRC DST` or --to")
    source, target = sides(options)
    job = Job(
        f"quafka-copy.{name}", source, target, with_configs=not options.no_configs,
        appends=options.append, compression=options.compression, runs=_RUNS,
    )  # fmt: skip
    began = clock.monotonic()
    asyncio.run(reach(job))
    with Stop() as stop, CopySession(job, _COMMIT_SECONDS) as session:
        partitions = asyncio.run(_partitions(job, options.source, name))
        session.add(partitions)
        whole = _to_the_end(session, partitions, stop)
        session.commit()
    groups: list[Translated] = []
    if whole and options.group:
        groups = asyncio.run(_groups(job, partitions, options.group))
    _report(options, name, session, partitions, groups, clock.monotonic() - began)
    if not whole:
        complain("interrupted; the same command continues the copy")
        return EXIT_INTERRUPTED
    return EXIT_FAILED if any(each.error for each in groups) else EXIT_DONE


async def _partitions(job: Job, topic: str, name: str) -> list[CopiedPartition]:
    async with job.source.cluster() as source, job.target.cluster() as target:
        return await partitions_of(job, source, target, {topic: name})


async def _groups(
    job: Job, partitions: Sequence[CopiedPartition], patterns: Sequence[str]
) -> list[Translated]:
    async with job.source.cluster() as source, job.target.cluster() as target:
        return await translate(source, target, partitions, patterns)


def _to_the_end(session: CopySession, partitions: Sequence[CopiedPartition], stop: Stop) -> bool:
    """Copy up to the ends of the start; whether that was reached."""
    left = {each.source: each for each in partitions if each.position < each.end}
    begun = {place: each.position for place, each in left.items()}
    total = sum(each.end - each.position for each in left.values())
    progress = ProgressLine("copying", RECORDS)
    try:
        while left and not stop.asked:
            session.step()
            for place in [
                place for place, each in left.items()
                if place in session.ended or each.position >= each.end
            ]:  # fmt: skip
                del left[place]
            done = sum(
                min(each.position, each.end) - begun[each.source]
                for each in partitions
                if each.source in begun
            )
            progress.show(done, total)
    finally:
        progress.end()
    return not left


def _report(
    options: argparse.Namespace,
    name: str,
    session: CopySession,
    partitions: Sequence[CopiedPartition],
    groups: Sequence[Translated],
    seconds: float,
) -> None:
    lost = sum(each.lost for each in partitions)
    if options.format == "json":
        document = {
            "source": options.source, "target": name, "partitions": len(partitions),
            "records": session.records, "bytes": session.bytes, "lost": lost,
            "seconds": round(seconds, 3), "groups": list(groups),
        }  # fmt: skip
        print(as_json(document))
    else:
        noun = "record" if session.records == 1 else "records"
        print(
            f"copied {session.records} {noun} ({size_text(session.bytes)}) from "
            f"{plain(options.source)} to {plain(name)} in {seconds:.1f} s"
        )
        if groups:
            rows = [(g.group, g.topic, g.partition, g.source_offset, g.offset) for g in groups]
            print(table(("GROUP", "TOPIC", "PARTITION", "AT THE SOURCE", "NOW"), rows))
    if lost:
        complain(f"{lost} offsets were deleted at the source before they could be copied")
    for error in dict.fromkeys(each.error for each in groups if each.error):
        names = sorted({each.group for each in groups if each.error == error})
        complain(f"group {', '.join(map(repr, names))}: {error}")
