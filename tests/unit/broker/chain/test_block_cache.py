"""The cache of blocks: bounded, least recently used ones go first, never another block's bytes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from quafka_broker.chain.block_cache import BLOCK, BlockCache, Key
from quafka_loop import threads


def block(number: int) -> bytes:
    return number.to_bytes(4, "big") * (BLOCK // 4)


def bytes_of(cache: BlockCache, key: Key, start: int, size: int) -> bytes:
    return bytes(cache.read(key, start, size) or b"")


def test_the_least_recently_used_block_goes_first(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "blocks", 3 * BLOCK)
    for number in range(3):
        cache.add(("a", number), block(number))
    assert bytes_of(cache, ("a", 0), 4, 8) == block(0)[:8]
    cache.add(("b", 0), block(7))
    assert cache.read(("a", 1), 0, 4) is None
    assert bytes_of(cache, ("a", 0), 0, BLOCK) == block(0)
    assert bytes_of(cache, ("b", 0), 0, BLOCK) == block(7)
    assert cache.held == 3 * BLOCK
    cache.close()


def test_a_smaller_cache_gives_its_space_back(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "blocks", 8 * BLOCK)
    for number in range(8):
        cache.add(("a", number), block(number))
    assert cache.shrink()
    assert (tmp_path / "blocks").stat().st_size == 4 * BLOCK
    assert sum(cache.has(("a", number)) for number in range(8)) == 4
    cache.resize(0)
    assert not cache.shrink()
    cache.add(("a", 1), block(1))
    assert cache.read(("a", 1), 0, 1) is None
    cache.close()


def test_a_full_disk_keeps_fewer_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BlockCache(tmp_path / "blocks", 8 * BLOCK)
    for number in range(4):
        cache.add(("a", number), block(number))

    def full(_fd: int, _data: bytes, _at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        cache.add(("b", 0), block(9))
    assert cache.read(("b", 0), 0, 1) is None
    assert cache.held == 2 * BLOCK
    cache.add(("b", 0), block(9))
    assert bytes_of(cache, ("b", 0), 0, BLOCK) == block(9)
    cache.close()


def test_a_cache_that_shrinks_and_grows_during_a_write_mixes_no_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BlockCache(tmp_path / "blocks", 2 * BLOCK)
    write, others = os.pwrite, list[threads.Thread]()

    def change() -> None:
        cache.shrink()
        for number in (1, 2):
            cache.add(("b", number), block(number))

    def slow(fd: int, data: bytes, at: int) -> int:
        if not others:
            others.append(threads.Thread(target=change))
            others[0].start()
            others[0].join(0.2)  # it waits for this write, or has done it all
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", slow)
    cache.add(("a", 9), block(9))
    others[0].join()
    for key in (("a", 9), ("b", 1), ("b", 2)):
        assert bytes_of(cache, key, 0, BLOCK) in (b"", block(key[1])), key
    assert bytes_of(cache, ("b", 2), 0, BLOCK)
    cache.close()
