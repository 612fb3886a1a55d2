"""What the tests of snapshots share."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from tests.unit.broker.snapshot_tools import (
    CopyingDestination,
)


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "dest"


@pytest.fixture(params=["linked", "copied"])
def store(request: pytest.FixtureRequest, dest: Path) -> Destination:
    return FolderDestination(dest) if request.param == "linked" else CopyingDestination(dest)
