"""The real disk: short writes, many buffers, the page cache."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from quafka_broker.wal.disk import Buffer, RealDisk


def test_more_buffers_than_one_call_takes(tmp_path: Path) -> None:
    file = RealDisk(tmp_path).create("x")
    buffers = [b"%d," % n for n in range(3_000)]
    file.append([*buffers, b"", memoryview(b"end")])
    expected = b"".join(buffers) + b"end"
    assert file.size() == len(expected)
    assert file.read(0, 10**6) == expected
    assert bytes(file.read_cached(5, 10) or b"") == expected[5:15]
    assert file.read_cached(len(expected) - 2, 10) is None, "not all of it is there"
    file.close()


@pytest.mark.parametrize("at_once", [1, 3, 7])
def test_short_writes_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    def short(fd: int, buffers: Sequence[Buffer]) -> int:
        return os.write(fd, b"".join(buffers)[:at_once])

    file = RealDisk(tmp_path).create("x")
    monkeypatch.setattr("os.writev", short)
    file.append([b"abc", b"", b"defgh", b"i"])
    file.append([b"jklm"])
    assert file.read(0, 100) == b"abcdefghijklm"
    file.close()


def test_a_write_that_writes_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk(tmp_path).create("x")
    monkeypatch.setattr("os.writev", lambda _fd, _buffers: 0)
    with pytest.raises(OSError, match="wrote nothing"):
        file.append([b"abc"])
    file.close()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_uncached_data_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def not_cached(*_: object) -> int:
        raise OSError(number, "not now")

    file = RealDisk(tmp_path).create("x")
    file.append([b"abc"])
    monkeypatch.setattr("os.preadv", not_cached)
    assert file.read_cached(0, 3) is None
    file.close()


def test_names_and_truncation(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    file = disk.create("x")
    with pytest.raises(FileExistsError):
        disk.create("x")
    file.append([b"abcdef"])
    file.truncate(2)
    file.append([b"!"])
    file.sync()
    disk.sync_names()
    assert file.read(0, 9) == b"ab!"
    file.close()
    assert disk.names() == ["x"]
    disk.remove("x")
    assert disk.names() == []
