"""A short `make crash`: real clients of three libraries under kill -9."""

from __future__ import annotations

import pytest

from tests.crash import kills
from tests.support.cluster import Cluster

pytestmark = pytest.mark.long


def test_nothing_acknowledged_is_lost_duplicated_or_out_of_order(cluster: Cluster) -> None:
    nemeses = (kills.kill_broker, kills.kill_broker_twice)
    figures = kills.run(cluster, 5, nemeses=nemeses, per_second=100, between=(0.1, 0.6), seed=1)
    assert not figures.problems, str(figures)
    assert not figures.given_up, str(figures)
    assert figures.acked == figures.sent > 500
