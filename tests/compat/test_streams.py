"""Kafka Streams with exactly_once_v2: counts are exact over kills and lost state."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from quafka_proto.schema.metadata import MetadataRequest, MetadataResponse
from tests.crash import kills
from tests.support.cluster import Cluster
from tests.support.compacted import ALWAYS_DUE, EAGER, wait_for_pass
from tests.support.group_members import GROUPS
from tests.support.java import JAVA_STREAMS
from tests.support.raw_client import RawClient
from tests.support.word_count import WordCount, count_words

pytestmark = pytest.mark.long


@JAVA_STREAMS
def test_a_word_count_is_exact(tmp_path: Path) -> None:
    with Cluster(tmp_path, broker_args=GROUPS) as cluster:
        disturb = [partial(kills.kill_broker, cluster), partial(kills.kill_gateway, cluster)]
        done = count_words(tmp_path, cluster.address, disturb, 8, between=(1.0, 2.0))
    assert done["application killed"], done
    assert done["server disturbed"], done
    assert done["words"] > 200, done


@JAVA_STREAMS
def test_state_is_restored_from_a_compacted_changelog(tmp_path: Path) -> None:
    args = (*GROUPS, *EAGER, *ALWAYS_DUE)
    with (
        Cluster(tmp_path, broker_args=args) as cluster,
        WordCount(tmp_path, cluster.address, 1, seed=3) as words,
    ):
        words.write(300)
        words.wait_counted(60)
        with RawClient(cluster.address) as client:
            every = client.call(MetadataRequest(topics=None), MetadataResponse, 9).topics
        (changelog,) = [each.name for each in every if (each.name or "").endswith("-changelog")]
        wait_for_pass(cluster.address, changelog or "")
        words.lose_state()
        words.write(20)
        words.wait_counted(60)
