"""Copies by transactional clients, with kills of all: the copy equals the source, exactly once."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from tests.crash import kills
from tests.support.cluster import Cluster
from tests.support.copier import COPIERS
from tests.support.copy_job import copy
from tests.support.go import go_copier
from tests.support.group_members import GROUPS
from tests.support.java import JAVA_TOOLS

pytestmark = pytest.mark.long


def _copied(folder: Path, kinds: list[str], turns: int) -> None:
    with Cluster(folder, broker_args=GROUPS) as cluster:
        disturb = [
            partial(kills.kill_broker, cluster),
            partial(kills.kill_gateway, cluster),
        ]

        def nothing(_rng: random.Random) -> None:
            pass

        copy(folder, cluster.address, kinds, [*disturb, nothing], turns=turns)


def test_python_clients(tmp_path: Path) -> None:
    _copied(tmp_path, list(COPIERS), turns=3)


@JAVA_TOOLS
@pytest.mark.needs("go", fetch=go_copier)
def test_java_and_franz_go(tmp_path: Path) -> None:
    _copied(tmp_path, ["java", "franz-go"], turns=2)
