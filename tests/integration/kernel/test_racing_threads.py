"""Threads of the system that use one folder or one cache at the same time."""

from __future__ import annotations

import random
from pathlib import Path
from unittest.mock import patch

from quafka_broker.chain.block_cache import BLOCK, BlockCache
from quafka_broker.wal.disk import RealDisk
from quafka_loop import threads
from quafka_objects.folder import FolderStore
from tests.integration.kernel.test_stores_in_s3 import (
    test_one_of_many_creators_succeeds as one_of_many_creators_succeeds,
)
from tests.unit.broker.chain.test_block_cache import block
from tests.unit.broker.test_descriptors import MOST, filled, open_here


def test_many_threads_read_many_files(tmp_path: Path) -> None:
    files = filled(RealDisk(tmp_path, MOST), 60)
    wrong: list[bytes] = []

    def read(first: int) -> None:
        for n in range(600):
            number = (first + 7 * n) % 60
            data = files[number].read(0, 9)
            if data != b"%03d" % number:
                wrong.append(data)

    readers = [threads.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join()
    assert not wrong
    assert open_here(tmp_path) == MOST


def test_readers_get_the_right_bytes_or_none_while_others_write(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "blocks", 4 * BLOCK)
    wrong: list[int] = []

    def use(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(300):
            number = rng.randrange(12)
            found = cache.read(("a", number), BLOCK - 8, 8)
            if found is None:
                cache.add(("a", number), block(number))
            elif found != block(number)[-8:]:
                wrong.append(number)

    readers = [threads.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join()
    assert not wrong
    cache.close()


def test_one_of_many_creators_succeeds_without_hard_links(tmp_path: Path) -> None:
    with patch("os.link", side_effect=PermissionError):
        one_of_many_creators_succeeds(FolderStore(tmp_path))
