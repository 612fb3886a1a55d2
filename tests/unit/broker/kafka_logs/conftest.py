from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka_folders import Expected, recorded


class Recorded:
    """The recorded folders, unpacked, and what Kafka's clients saw."""

    def __init__(self, folder: Path) -> None:
        self.expected: Expected = recorded(folder)
        self.folder = folder


@pytest.fixture(scope="session")
def kafka_folders(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("kafka"))
