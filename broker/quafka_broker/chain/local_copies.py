"""Local copies of files that are objects: the part of the cache that was written here."""

from __future__ import annotations

from operator import attrgetter

from quafka_broker.chain.block_cache import BlockCache
from quafka_broker.chain.store_file import FileContent
from quafka_broker.wal.disk import RealDisk

_SHARE = 0.75
"""The share of the cache for copies; the rest is for blocks of older objects."""

_used = attrgetter("used")


class LocalCopies:
    """The removable copies, within the bytes of the cache; blocks have the rest.

    All methods are called with the lock of the folder held.
    """

    def __init__(self, local: RealDisk, blocks: BlockCache, capacity: int) -> None:
        self._local = local
        self._blocks = blocks
        self._capacity = capacity
        self._sizes: dict[FileContent, int] = {}
        self.bytes = 0

    @property
    def used(self) -> tuple[int, int]:
        """Bytes of copies, and of blocks."""
        return self.bytes, self._blocks.held

    def add(self, node: FileContent) -> None:
        """Add a named local file that has become an object."""
        if node not in self._sizes:
            self._sizes[node] = node.size
            self.bytes += node.size
            self._trim(int(self._capacity * _SHARE))

    def forget(self, node: FileContent) -> None:
        """Forget a file that has lost its name, or whose object has lost its content."""
        self.bytes -= self._sizes.pop(node, 0)

    def shrink(self) -> bool:
        """Remove half of the copies; False if there was none."""
        before = self.bytes
        self._trim(before // 2)
        return before > 0

    def _trim(self, most: int) -> None:
        while self._sizes and self.bytes > most:
            node = min(self._sizes, key=_used)
            self.forget(node)
            if node.name is not None:
                self._local.remove(node.name)
            node.local = None
        self._blocks.resize(max(0, self._capacity - self.bytes))
