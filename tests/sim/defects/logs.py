"""Defects of the log: commit, recovery, producers, compaction."""

from __future__ import annotations

from collections.abc import Sequence

from quafka_broker.compaction.offset_map import OffsetMap
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.active_segment import ActiveSegment
from quafka_broker.wal.commit_group import CommitGroup
from quafka_broker.wal.durability import FsyncDurability
from quafka_broker.wal.scan import OpenGroup
from quafka_proto.log_format import IndexRow
from tests.sim.defects.defect import KILLS, Defect, Where, change

_SYNCED_LATER_S = 1.0


def _acknowledged_before_fsync() -> None:
    write, commit = ActiveSegment.write, FsyncDurability.commit

    async def without_sync(self: ActiveSegment, group: CommitGroup) -> None:
        if not self.syncs_groups:
            await write(self, group)
            return
        self._write(group)

    def synced_later(self: FsyncDurability, group: CommitGroup) -> None:
        self._interval = self._interval or _SYNCED_LATER_S
        commit(self, group)

    change(ActiveSegment, "write", without_sync)
    change(FsyncDurability, "commit", synced_later)


def _one_entry_too_many_is_cut() -> None:
    cut = OpenGroup.cut

    def cut_more(self: OpenGroup, rows: list[IndexRow]) -> list[IndexRow]:
        return cut(self, rows)[:-1]

    change(OpenGroup, "cut", cut_more)


def _no_check_of_sequences() -> None:
    change(Producers, "duplicate_of", lambda *_: None)


def _producers_forgotten_on_restart() -> None:
    """A producer without a known batch may begin with any sequence, as after its expiry."""
    change(Producers, "restore_row", lambda *_: None)
    change(Producers, "load", lambda *_: None)
    change(Producers, "_check_first", lambda *_: None)


def _compaction_drops_the_newest() -> None:
    last_offsets = OffsetMap.last_offsets

    def one_more(self: OffsetMap, hashes: Sequence[bytes]) -> list[int]:
        return [last + 1 for last in last_offsets(self, hashes)]

    change(OffsetMap, "last_offsets", one_more)


DEFECTS = {
    "acknowledged before the fsync": Defect(
        _acknowledged_before_fsync, Where.FOLDER, faults=("power",)
    ),
    "recovery cuts off one entry too many": Defect(
        _one_entry_too_many_is_cut, Where.FOLDER, faults=("power",)
    ),
    "sequences are not checked": Defect(_no_check_of_sequences),
    "a restart forgets producers": Defect(_producers_forgotten_on_restart, faults=KILLS),
    "compaction drops the newest record of a key": Defect(
        _compaction_drops_the_newest, compacts=True
    ),
}
