"""Members that come, go, die and stand still, gateway and broker killed amid it: nothing is lost.

For longer: `python -m tests.soak groups`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.group_members import GROUPS
from tests.support.storm import blow

pytestmark = pytest.mark.long


def test_a_storm(tmp_path: Path) -> None:
    with Cluster(tmp_path, broker_args=GROUPS) as cluster:
        done = blow(cluster, tmp_path, ["confluent-kafka"], 5, kill_every=1.5, check_every=2)
    assert done["gateway killed"]
    assert done["broker killed"]
