"""A folder of many files takes few descriptors, without effect on users of the files."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from quafka_broker.wal.disk import File, RealDisk

MOST = 16


def open_here(folder: Path) -> int:
    links = [entry.path for entry in os.scandir("/proc/self/fd")]
    return sum(_target(link).startswith(str(folder)) for link in links)


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - of /proc
    except FileNotFoundError:  # the descriptor with which the folder was listed
        return ""


def filled(disk: RealDisk, count: int) -> list[File]:
    files = [disk.create(str(n)) for n in range(count)]
    for n, file in enumerate(files):
        file.append([b"%03d" % n])
        file.sync()
    return files


def test_few_descriptors_are_open(tmp_path: Path) -> None:
    files = filled(RealDisk(tmp_path, MOST), 100)
    assert open_here(tmp_path) == MOST
    assert [file.read(0, 9) for file in files] == [b"%03d" % n for n in range(100)]
    assert files[0].read_cached(0, 3) is None, "it would have to be opened"
    assert bytes(files[99].read_cached(0, 3) or b"") == b"099"
    assert files[0].size() == 3
    assert open_here(tmp_path) == MOST
    del files
    gc.collect()
    assert open_here(tmp_path) == 0


def test_a_file_with_unsynced_writes_stays_open(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path, MOST)
    written = disk.create("written")
    written.append([b"x"])
    filled(disk, 100)
    assert bytes(written.read_cached(0, 1) or b"") == b"x"
    written.sync()
    kept = filled(RealDisk(tmp_path / ".", MOST), 0)
    assert kept == []
    others = [disk.open(str(n)) for n in range(100)]
    assert written.read_cached(0, 1) is None
    assert written.read(0, 1) == b"x"
    del others


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_without_a_name_can_be_read_on(tmp_path: Path, how: str) -> None:
    disk = RealDisk(tmp_path, MOST)
    files = filled(disk, 100)
    old, new = files[0], files[1]
    if how == "removed":
        disk.remove("0")
    else:
        disk.rename("1", "0")
    assert [file.read(0, 3) for file in files[2:]] == [b"%03d" % n for n in range(2, 100)]
    assert old.read(0, 3) == b"000"
    if how == "replaced":
        assert new.read(0, 3) == b"001"
        assert disk.open("0").read(0, 3) == b"001"


def test_a_name_that_another_program_gave_to_another_file(tmp_path: Path) -> None:
    files = filled(RealDisk(tmp_path, MOST), 100)
    (tmp_path / "0").rename(tmp_path / "elsewhere")
    (tmp_path / "0").write_bytes(b"000")
    with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
        files[0].read(0, 3)
    (tmp_path / "elsewhere").replace(tmp_path / "0")
    assert files[0].read(0, 3) == b"000"


def test_a_closed_file_stays_closed(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path, MOST)
    file = disk.create("x")
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.read(0, 1)
    disk.remove("x")
    assert open_here(tmp_path) == 0
