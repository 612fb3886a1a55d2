"""Random changes of a folder over a store, with faults, evictions and lost brokers, and a model.

Finished files have the content that was synced, or, if `sync_names` has not returned since they
were named, may be missing. Handles read the content that their file has, whatever happens to its
name and to its local copy.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from quafka_broker.chain.collect import Collector
from quafka_broker.wal.disk import TEMPORARY, File
from quafka_objects.asynchronous import AsyncObjectStore
from tests.crash.store_explorer import needed
from tests.support.store_folder import SHARD, CommittingFile, CommittingFolder, RecordedStore
from tests.support.suites import examples

NAMES = ("checkpoint-1", "checkpoint-2", "leader-epoch", "000000000007.log", "000000000007.oidx")
ACTIVE = ("000000000008.log", "000000000008.oidx")
CACHE_BYTES = 1 << 20


class FolderMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="quafka-folder-"))
        self.store = RecordedStore(seed=1)
        self.opened = 0
        self.open()
        self.files: dict[str, bytes] = {}
        self.durable: dict[str, bytes] = {}
        self.handles: list[tuple[File, bytes]] = []

    def open(self) -> None:
        self.store.trouble = 0.0
        self.opened += 1
        self.folder = CommittingFolder(
            self.store, self.scratch / str(self.opened), cache_bytes=CACHE_BYTES
        )
        self.store.trouble = 0.2

    def teardown(self) -> None:
        self.lose_broker()
        self.folder.close()
        shutil.rmtree(self.scratch)

    @rule(
        name=st.sampled_from(NAMES),
        content=st.binary(max_size=300),
        pieces=st.integers(1, 3),
        cut=st.integers(0, 5),
        names=st.booleans(),
    )
    def write(self, name: str, content: bytes, pieces: int, cut: int, names: bool) -> None:
        """A finished file, as checkpoints, rewritten segments and the leader epoch are made."""
        file = self.folder.create(name + TEMPORARY)
        for at in range(pieces):
            file.append([content[at::pieces]])
            file.write_back()
        file.append([b"x" * cut])
        file.truncate(file.size() - cut)
        file.sync()
        whole = b"".join(content[at::pieces] for at in range(pieces))
        self.folder.rename(name + TEMPORARY, name)
        self.files[name] = whole
        self.handles.append((file, whole))
        if names:
            self.sync_names()

    @rule()
    def sync_names(self) -> None:
        self.folder.sync_names()
        self.durable = dict(self.files)

    @rule(name=st.sampled_from(NAMES), names=st.booleans())
    def remove(self, name: str, names: bool) -> None:
        if self.folder.exists(name):
            self.folder.remove(name)
            del self.files[name]
        if names:
            self.sync_names()

    @rule(name=st.sampled_from(NAMES), more=st.binary(min_size=1, max_size=50))
    def change(self, name: str, more: bytes) -> None:
        """As recovery completes an index."""
        if name in self.files:
            file = self.folder.open(name)
            file.append([more])
            file.sync()
            changed = self.files[name] + more
            self.handles = [(old, data) for old, data in self.handles if data != self.files[name]]
            self.files[name] = changed
            self.durable = dict(self.files)

    @rule(name=st.sampled_from(NAMES))
    def open_file(self, name: str) -> None:
        if name in self.files:
            self.handles.append((self.folder.open(name), self.files[name]))

    @rule()
    def lose_copies(self) -> None:
        self.folder.disk.make_room()

    @rule()
    def collect(self) -> None:
        """What neither the manifest nor the broker needs is deleted; handles may outlive that."""
        before = set(self.store.objects)
        asyncio.run(self._collect())
        gone = before - set(self.store.objects)
        self.handles = [each for each in self.handles if not _stored_in(each[0]) & gone]
        assert set(needed(self.store.objects)) >= before - gone - self.folder.disk.files.kept()

    async def _collect(self) -> None:
        trouble, self.store.trouble = self.store.trouble, 0.0
        calls = AsyncObjectStore(self.store, calls_at_once=4)
        shard = self.folder.shard
        collector = Collector(calls, SHARD, shard.epoch, self.folder.disk.files.kept, grace_s=0)
        await collector.collect(0)
        await calls.close()
        self.store.trouble = trouble

    @rule()
    def lose_broker(self) -> None:
        self.folder.close()
        self.handles.clear()
        left = needed(self.store.objects)
        self.store = RecordedStore(left, seed=len(left))
        self.open()
        assert {name: self.content(name) for name in self.listed()} == self.durable
        self.files = dict(self.durable)

    def listed(self) -> list[str]:
        """The names without those of the segment that a takeover adds, to append to."""
        return [name for name in self.folder.names() if name not in ACTIVE]

    def content(self, name: str) -> bytes:
        file = self.folder.open(name)
        return file.read(0, file.size())

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        if self.handles:
            file, content = data.draw(st.sampled_from(self.handles))
            at, size = data.draw(st.integers(0, 310)), data.draw(st.integers(0, 310))
            assert file.read(at, size) == content[at : at + size]
            cached = file.read_cached(at, size)
            assert cached is None or bytes(cached) == content[at : at + size]
            assert file.size() == len(content)

    @invariant()
    def names_are_those_of_the_model(self) -> None:
        assert self.listed() == sorted(self.files)


def _stored_in(file: File) -> set[str]:
    assert isinstance(file, CommittingFile)
    stored = file.node.stored
    return set() if stored is None else {stored.path}


FolderMachine.TestCase.settings = examples(20, stateful_step_count=30)
TestFolder = FolderMachine.TestCase
