"""Global ids during recovery: the next id, and the ids in damaged pieces."""

from __future__ import annotations

from quafka_broker.wal.contents import Contents
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.quarantine import SegmentDamage
from quafka_broker.wal.segment import Segment, log_name
from quafka_proto.log_format import APPENDED, IndexRow


class IdSequence:
    """Follows the entries of all segments in the order of global ids.

    The ids in a damaged piece are often unknown until the next good entry shows where they end.
    Such damage is *open* until then.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._open_damages: list[SegmentDamage] = []
        self._kind_before = APPENDED  # of the segment with the last entry
        self.next_id = 0

    def add_entry(self, segment: Segment, row: IndexRow) -> None:
        """Add a found entry, or the row of one, to its segment and its partition.

        Raises:
            DamagedLogError: its id is not above earlier ones, or its offsets contradict earlier
                entries.
        """
        if row.global_id < self.next_id:
            raise DamagedLogError(
                f"{log_name(segment.number)} has the id {row.global_id} at position "
                f"{row.position}, where {self.next_id} is next"
            )
        jumps = row.global_id > self.next_id and not self._open_damages
        kinds = (segment.kind, segment.kind if segment.entries else self._kind_before)
        self._kind_before = segment.kind
        if jumps and kinds == (APPENDED, APPENDED):  # otherwise a rewrite has removed records
            at, reason = row.position, "records are missing before it"
            self._open_damages.append(SegmentDamage(segment.number, at, at, reason, 0, 0))
        self.close_damages(row.global_id)
        segment.add_rows([row])
        self.next_id = row.global_id + row.record_count
        self._contents.restore_row(row)

    def add_orphans(self, rows: list[IndexRow]) -> None:
        """Add rows of entries whose log file is missing or unreadable."""
        for row in rows:
            if row.global_id >= self.next_id:
                self.next_id = row.global_id + row.record_count
                self._contents.restore_row(row)

    def reach(self, next_id: int) -> None:
        """Note that all ids below this one have been assigned."""
        self.next_id = max(self.next_id, next_id)

    def open_damage(self, damage: SegmentDamage) -> None:
        """Add damage with unknown ids."""
        self._open_damages.append(damage)

    def close_damages(self, next_id: int) -> None:
        """Close all open damage, whose ids are below this one."""
        first = self.next_id
        for damage in self._open_damages:
            self._contents.add_damage(damage._replace(first_id=first, end_id=next_id))
            first = next_id
        self._open_damages.clear()
