"""The names of a shard's files, and the objects that the shard's manifest lists under them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from quafka_broker.chain.chained_segments import ChainedSegments
from quafka_broker.chain.file_objects import FileObjects, segment_number
from quafka_broker.chain.local_copies import LocalCopies
from quafka_broker.chain.owned_shard import OwnedShard
from quafka_broker.chain.patience import Patience
from quafka_broker.chain.store_file import FileContent
from quafka_broker.wal.disk import TEMPORARY, RealDisk
from quafka_broker.wal.segment import index_name, log_name
from quafka_loop import threads
from quafka_proto.chain_format import ShardManifest, StoredFile, part_of

_SWAP_SECONDS = 2.0  # of an attempt; a stopping broker waits for the one under way


class ShardFiles:
    """The files of one shard.

    Attributes:
        lock: guards the names; held while local files are named, never during a request.
        nodes: the files by name.
        segments: the segments that the chain has.
        on_sealed: called when a segment has been sealed.
    """

    def __init__(
        self,
        shard: OwnedShard,
        local: RealDisk,
        objects: FileObjects,
        copies: LocalCopies,
        patience: Patience,
        files: Iterable[StoredFile],
    ) -> None:
        """`files`: the list that the manifest names."""
        self._shard = shard
        self._local = local
        self._objects = objects
        self._copies = copies
        self._patience = patience
        self.lock = threads.RLock()
        self.nodes = {
            file.name: FileContent(file.name, stored=file)
            for file in files
            if part_of(file.name) is None
        }
        self.segments = ChainedSegments()
        self.on_sealed: Callable[[], None] = lambda: None
        # Numbers of changes of the list: the last change, the last one of each thread, and the last
        # one that the manifest has.
        self._version = self._committed = 0
        self._mine = threads.local()
        self._committing = threads.Lock()

    def sync(self) -> None:
        """Make the manifest name the files that this thread has named. Raises OSError."""
        with self.lock:
            self._note_sealed()
            version: int = getattr(self._mine, "version", 0)
        if self._committed < version:
            with self._committing:
                if self._committed < version:
                    self._commit()

    def _commit(self) -> None:
        """Make the manifest name the present files. Raises OSError."""
        for node in self._unsaved():
            self.upload(node)
        with self.lock:
            version, listed = self._version, self._listed()
            files = [node.stored for node in listed if node.stored is not None]
            files += self.segments.files()
            start, tail = self.segments.starts(self.is_log_chained)
        path = self._objects.put_list(files)

        def change(manifest: ShardManifest) -> ShardManifest:
            return replace(
                manifest,
                directory=path,
                chain_start=max(manifest.chain_start, start),
                tail_start=max(manifest.tail_start, tail),
            )

        self._patience.until_answered(
            "writing the manifest", lambda: self._shard.update_blocking(change, _SWAP_SECONDS)
        )
        with self.lock:
            self._committed = max(self._committed, version)
            self._objects.settle([path, *(file.path for file in files)])
            for node in listed:
                if node.stored is not None and node.local is not None and node.name is not None:
                    self._copies.add(node)
            self.segments.keep(
                lambda number: self.is_log_chained(number) or self._is_chained(index_name(number))
            )

    def _unsaved(self) -> list[FileContent]:
        """The files with a name that are neither objects nor in the chain."""
        with self.lock:
            return [
                node
                for name, node in self.nodes.items()
                if node.stored is None
                and not (node.chained or node.kept_local or name.endswith(TEMPORARY))
            ]

    def _listed(self) -> list[FileContent]:
        return [
            node
            for name, node in self.nodes.items()
            if node.stored is not None and not node.chained and not name.endswith(TEMPORARY)
        ]

    def upload(self, node: FileContent) -> StoredFile:
        """Write a file, which must not change meanwhile, as an object.

        Raises:
            OSError: the file cannot be read, or the broker stops.
        """
        local, name = node.local, node.name
        assert local is not None, "it is local"
        assert name is not None, "it has a name"
        name = name.removesuffix(TEMPORARY)
        stored = self._objects.put(name, name, local, 0, local.size())
        if not node.chained:
            node.save(stored)
        return stored

    def kept(self) -> set[str]:
        """The objects that must not be deleted although no manifest names them yet."""
        unnamed = self._objects.unnamed()  # first: objects leave it for the manifest
        with self.lock:
            named = (node.stored for node in self.nodes.values())
            return unnamed.union(stored.path for stored in named if stored is not None)

    def place(self, name: str, position: int, length: int) -> tuple[str, int] | None:
        """The object that has a range of a file, and where; None if there is none yet."""
        with self.lock:
            node = self.nodes.get(name)
            stored = node.stored if node is not None else None
        if stored is None or position + length > stored.size:
            return None
        return stored.path, position

    def stored(self) -> list[StoredFile]:
        """The files that are objects."""
        with self.lock:
            return [node.stored for node in self._listed() if node.stored is not None]

    # --- with the lock held -------------------------------------------------------------------

    def changed(self) -> None:
        """Note that this thread has changed the list of files."""
        self._version += 1
        self._mine.version = self._version

    def find(self, name: str) -> FileContent:
        """A file. Raises FileNotFoundError."""
        try:
            return self.nodes[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def unname(self, node: FileContent) -> None:
        """Remove a file's name; its readers keep the file."""
        assert node.name is not None, "it has a name"
        self._copies.forget(node)
        if node.stored is not None:
            self._objects.settle([node.stored.path])
        if node.local is not None:
            self._local.remove(node.name)
        number = segment_number(node.name)
        if number is not None and node.chained and node.name == log_name(number):
            self.segments.remove(number)
        node.name = None

    def _note_sealed(self) -> None:
        """Once the files of a segment exist, those before it are sealed."""
        newest = self.segments.newest or 0
        if newest > self.segments.sealed_below and index_name(newest) in self.nodes:
            self.segments.sealed_below = newest
            self.on_sealed()

    def _is_chained(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and node.chained

    def is_log_chained(self, number: int) -> bool:
        return self._is_chained(log_name(number))

    def is_of_active(self, name: str) -> bool:
        """Whether a file belongs to the active segment, whose index may be rebuilt."""
        number = segment_number(name.removesuffix(TEMPORARY))
        if number is None or number != self.segments.newest:
            return False
        is_index = name.removesuffix(TEMPORARY) == index_name(number)
        return is_index and self.is_log_chained(number)
