"""The files of a shard whose content is only in the chain, and how they become objects."""

from __future__ import annotations

from quafka_broker.chain.file_objects import FileObjects
from quafka_broker.chain.owned_shard import OwnedShard
from quafka_broker.chain.segment_parts import SegmentPart, SegmentParts, merged, rows_below
from quafka_broker.chain.shard_files import ShardFiles
from quafka_broker.chain.store_file import FileContent
from quafka_broker.wal.disk import File
from quafka_broker.wal.segment import index_name, log_name
from quafka_proto.chain_format import StoredFile, part_name


class ChainedFiles:
    """Sealed segments that are not objects yet, and the active one."""

    def __init__(self, files: ShardFiles, shard: OwnedShard, objects: FileObjects) -> None:
        self._files = files
        self._shard = shard
        self._objects = objects

    def sealed(self) -> list[tuple[int, list[FileContent]]]:
        """The sealed segments that are not objects yet, with their files, oldest first."""
        with self._files.lock:
            found: list[tuple[int, list[FileContent]]] = []
            for number in self._files.segments:
                nodes = [
                    self._files.nodes.get(log_name(number)),
                    self._files.nodes.get(index_name(number)),
                ]
                files = [node for node in nodes if node is not None and node.chained]
                if number < self._files.segments.sealed_below and files:
                    found.append((number, files))
            return found

    def uploaded(self, number: int, files: list[tuple[FileContent, StoredFile]]) -> None:
        """Name the objects of a sealed segment's files in the manifest, and free the chain.

        Files that have meanwhile been replaced, removed or changed are skipped.
        """
        with self._files.lock:
            if number >= self._files.segments.sealed_below:
                return
            for node, stored in files:
                same = self._files.nodes.get(stored.name) is node and node.local is not None
                if same and node.local is not None and node.local.size() == stored.size:
                    node.chained = False
                    node.save(stored)
                    self._files.changed()
                    if stored.name == log_name(number):
                        self._files.segments.drop_parts(number)
                else:
                    self._objects.settle([stored.path])
        self._files.sync()

    def tail(self) -> tuple[int, int]:
        """See `ChainedSegments.tail`."""
        end = self._shard.durable
        with self._files.lock:
            return self._files.segments.tail(end)

    def save_tail(self) -> None:
        """Write the end of the active segment as an object, so that a takeover reads less.

        Raises:
            OSError: the broker stops, or was fenced.
        """
        end = self._shard.durable
        with self._files.lock:
            number = self._files.segments.sealed_below
            log, index = (self._files.nodes.get(name(number)) for name in (log_name, index_name))
            parts = self._files.segments.parts_of(number)
        if parts is None or log is None or index is None or not (log.chained and index.chained):
            return
        if end.segment != number or end.position <= parts.end:
            return
        assert log.local is not None, "it is appended to"
        assert index.local is not None, "it is appended to"
        kept, start, start_row = merged(parts.parts, end.position)
        end_row = rows_below(index.local, start_row, end.position)
        part = SegmentPart(
            self._put_part(log_name(number), log.local, start, end.position),
            self._put_part(index_name(number), index.local, start_row, end_row),
        )
        with self._files.lock:
            if self._files.segments.parts_of(number) is not parts or index.name is None:
                self._objects.settle([part.log.path, part.rows.path])
                return
            self._files.segments.set_parts(number, SegmentParts((*kept, part), end.seq))
            self._files.changed()
        self._files.sync()

    def _put_part(self, name: str, local: File, start: int, end: int) -> StoredFile:
        return self._objects.put(part_name(name, start), name, local, start, end)
