"""The end of a chain, as readers outside the broker see it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from quafka_loop import threads
from quafka_objects.chain_tail import ChainGapError, ChainTail
from quafka_objects.folder import FolderStore
from quafka_proto.chain_format import FENCE, ChainHeader, chain_path, encode_header
from quafka_proto.errors import Malformed
from quafka_proto.log_format import INDEX_ROW_SIZE
from tests.support.injected_store import InjectedStore


class Chain:
    """Writes objects of one segment; their entries are filler."""

    def __init__(self, folder: Path) -> None:
        self.store = InjectedStore(FolderStore(folder))
        self._position = 24

    def add(self, seq: int, epoch: int = 1, *, fence: bool = False, length: int = 100) -> None:
        if fence:
            header = ChainHeader(FENCE, 0, seq, epoch, b"n" * 16)
        else:
            header = ChainHeader(0, 0, seq, epoch, b"n" * 16, 7, self._position, seq, 2, 5, length)
            self._position += length
        rows = b"%d" % seq * INDEX_ROW_SIZE
        data = encode_header(header) + b"e" * header.length
        data += rows[:INDEX_ROW_SIZE] * header.entries
        self.store.put(chain_path(0, seq), data)

    def reads(self) -> list[str]:
        """The paths that were read since the last time."""
        found = [path for kind, path in self.store.calls if kind == "get"]
        self.store.calls.clear()
        return found


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


@pytest.fixture
def readers() -> Iterator[Executor]:
    with threads.ThreadPoolExecutor(2) as pool:
        yield pool


def test_up_to_the_first_hole_and_each_object_once(chain: Chain, readers: Executor) -> None:
    for seq in (0, 1, 2, 4):
        chain.add(seq)
    tail = ChainTail(chain.store, 0)
    assert [each.header.seq for each in tail.read(0, 0, {}, readers)] == [0, 1, 2]
    chain.add(3)
    chain.reads()
    found = tail.read(0, 0, {}, readers)
    assert [each.header.seq for each in found] == [0, 1, 2, 3, 4]
    assert sorted(chain.reads()) == [chain_path(0, 3), chain_path(0, 4)]
    assert found[3].rows == b"3" * INDEX_ROW_SIZE * 2
    assert [each.header.seq for each in tail.read(2, 0, {}, readers)] == [2, 3, 4]
    assert chain.reads() == []


def test_writers_that_had_been_fenced_are_ignored(chain: Chain, readers: Executor) -> None:
    chain.add(0, epoch=1)
    chain.add(1, epoch=2, fence=True)
    chain.add(2, epoch=1)  # created after the fence, by a writer that did not know of it
    chain.add(3, epoch=2, fence=True)
    chain.add(4, epoch=2)
    found = ChainTail(chain.store, 0).read(0, 0, {}, readers)
    assert [each.header.seq for each in found] == [0, 4]


def test_what_pieces_cover_is_passed_over(chain: Chain, readers: Executor) -> None:
    for seq in range(3):
        chain.add(seq)
    tail = ChainTail(chain.store, 0)
    assert [each.header.seq for each in tail.read(0, 0, {7: 124, 8: 999}, readers)] == [1, 2]
    assert tail.read(0, 0, {7: 1 << 62}, readers) == []


def test_objects_that_were_deleted(chain: Chain, readers: Executor) -> None:
    tail = ChainTail(chain.store, 0)
    assert tail.read(5, 5, {}, readers) == [], "nothing was added since"
    chain.add(3, fence=True)  # fences stay
    chain.add(6)
    with pytest.raises(ChainGapError, match="chain object 4"):
        tail.read(3, 6, {}, readers)


def test_large_objects_are_not_read_whole(chain: Chain, readers: Executor) -> None:
    chain.add(0, length=1 << 20)
    [found] = ChainTail(chain.store, 0).read(0, 0, {}, readers)
    assert found.rows == b"0" * INDEX_ROW_SIZE * 2
    assert len(chain.reads()) == 2, "the header, and the rows"


@pytest.mark.parametrize("length", [100, 1 << 20])
def test_damaged_objects(chain: Chain, readers: Executor, length: int) -> None:
    chain.add(0, length=length)
    whole = chain.store.get(chain_path(0, 0)).data
    for damaged in (whole[:-1], whole + b"x", b"\0" + whole[1:]):
        chain.store.put(chain_path(0, 0), damaged)
        with pytest.raises(Malformed):
            ChainTail(chain.store, 0).read(0, 0, {}, readers)
