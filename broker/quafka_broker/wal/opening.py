"""Opens a log: the newest checkpoint, recovery, an active segment and a leader epoch."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from quafka_broker.wal.checkpoint_file import Checkpoint, FoundCheckpoints, load_newest
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.epoch_file import EpochFile, Evidence
from quafka_broker.wal.recovery import Recovered, StaleCheckpointError, recover
from quafka_broker.wal.reserve import Reserve
from quafka_broker.wal.segment import Segment
from quafka_proto.log_format import REWRITTEN

log = logging.getLogger("quafka.broker.wal")


def open_contents(
    disk: Disk, contents: Contents, epoch_file: EpochFile, reserve: Reserve
) -> FoundCheckpoints:
    """Fill the contents from the files, ready for appends; returns the checkpoints. Blocks.

    Raises:
        DamagedLogError: the log contradicts itself.
        OSError: a file cannot be read, or cannot be repaired.
    """
    found = load_newest(disk)
    checkpoint = found.checkpoint
    recovered = _recover(disk, contents, checkpoint)
    segments = contents.segments
    contents.producers.evictions_unknown = checkpoint is None and _has_freed(segments)
    if not segments or segments[-1].number != recovered.active:
        contents.append_segment(Segment.create(disk, recovered.active))
    # Recovery has synced or verified everything that remains. Another sync ensures that nothing
    # served from now on can be lost.
    contents.segments[-1].sync()
    reserve.hold()
    _begin_epoch(contents, epoch_file, recovered, checkpoint)
    return found


def _recover(disk: Disk, contents: Contents, checkpoint: Checkpoint | None) -> Recovered:
    if checkpoint is None:
        return recover(disk, None, contents)
    contents.load_checkpoint(checkpoint)
    try:
        return recover(disk, checkpoint, contents)
    except StaleCheckpointError as e:
        log.warning("%s: reading all of the index", e)
    contents.reset()
    without = checkpoint._replace(segments=[], partitions=[], next_id=0)
    recovered = recover(disk, without, contents)
    for saved in checkpoint.partitions:
        contents.producers.load_unknown(saved.id, saved.producers)
    return recovered


def _begin_epoch(
    contents: Contents,
    epoch_file: EpochFile,
    recovered: Recovered,
    checkpoint: Checkpoint | None,
) -> None:
    epochs, first = contents.epochs, contents.segments[0].first_id
    known = checkpoint is not None and checkpoint.epochs is not None
    evidence = Evidence(epochs.current, known, recovered.empty, recovered.damaged, recovered.torn)
    epochs.begin_epoch(epoch_file.begin(evidence), contents.next_id)
    epochs.drop_below(contents.next_id if first is None else first)


def _has_freed(segments: Sequence[Segment]) -> bool:
    """Whether records may have been removed, so that they do not show all producers.

    Global ids are dense in append order: a missing id was removed or lost. Gaps between segment
    numbers prove nothing, because a segment that never got its header leaves one, too.
    """
    expected = 0
    for segment in segments:
        if segment.first_id is None:
            continue
        if segment.kind == REWRITTEN or segment.first_id != expected:
            return True
        expected = segment.next_id
    return False
