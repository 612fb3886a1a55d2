"""A disk whose writes stay in memory."""

from __future__ import annotations

import pytest

from quafka_broker.wal.trial_disk import TrialDisk
from tests.unit.broker.memory_disk import MemoryDisk


def real() -> MemoryDisk:
    disk = MemoryDisk()
    disk.put("a", b"0123456789")
    disk.put("b", b"b")
    return disk


def test_the_disk_below_does_not_change() -> None:
    below = real()
    trial = TrialDisk(below)
    a = trial.open("a")
    a.append([b"xy", bytearray(b"z")])
    assert (a.size(), a.read(8, 4), a.read_cached(11, 2)) == (13, b"89xy", bytearray(b"yz"))
    assert a.read_cached(12, 2) is None
    a.truncate(4)
    a.append([b"new"])
    assert a.read(0, 100) == b"0123new"
    a.truncate(5)
    a.truncate(7)
    assert a.read(2, 100) == b"23n\0\0"
    a.sync()
    a.close()
    assert trial.open("a").read(0, 100) == b"0123n\0\0"
    trial.create("c").append([b"c"])
    trial.rename("c", "b")
    trial.allocate("reserve", 1 << 40)
    assert trial.names() == ["a", "b", "reserve"]
    assert trial.open("b").read(0, 9) == b"c"
    trial.remove("a")
    trial.sync_names()
    assert not trial.exists("a")
    assert trial.names() == ["b", "reserve"]
    assert {name: bytes(file.data) for name, file in below.files.items()} == {
        "a": b"0123456789", "b": b"b"
    }  # fmt: skip
    assert below.done == real().done


def test_names_that_are_or_are_not_there() -> None:
    trial = TrialDisk(real())
    with pytest.raises(FileExistsError):
        trial.create("a")
    trial.remove("a")
    with pytest.raises(FileNotFoundError):
        trial.open("a")
    with pytest.raises(FileNotFoundError):
        trial.remove("a")
    with pytest.raises(FileNotFoundError):
        trial.rename("a", "d")
    trial.create("a")
