"""Power cuts of real file systems: ext4 and XFS lose unsynced data, and are remounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import kills
from tests.support.cluster import Cluster
from tests.support.mounts import FILE_SYSTEMS, LoopFilesystem, mountable

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", FILE_SYSTEMS.values())
def test_nothing_acknowledged_is_lost(tmp_path: Path, kind: str) -> None:
    with mountable(), LoopFilesystem(tmp_path, kind) as disk:
        cuts = (kills.power_cut(disk),)
        with Cluster(tmp_path, data=disk.path / "data") as cluster:
            figures = kills.run(cluster, 3, nemeses=cuts, per_second=100, between=(0.1, 0.6))
    assert not figures.problems, str(figures)
    assert not figures.given_up, str(figures)
    assert figures.acked == figures.sent > 300


@pytest.mark.needs("mkfs.ext4")
def test_unsynced_data_is_really_lost(tmp_path: Path) -> None:
    """The power cuts of the test above really lose data."""
    with mountable(), LoopFilesystem(tmp_path, "ext4") as disk:
        (disk.path / "unsynced").write_bytes(b"x" * 10_000)
        disk.cut_power()
        with pytest.raises(OSError, match="Input/output error"):
            (disk.path / "later").write_bytes(b"x")
        disk.restore_power()
        left = disk.path / "unsynced"
        assert not left.exists() or left.read_bytes() != b"x" * 10_000
