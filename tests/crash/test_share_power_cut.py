"""The power is cut at every operation of random share groups."""

from __future__ import annotations

import random

import pytest

from quafka_broker.ops import partitions, share_groups
from quafka_mesh_ops.ops.admin import CreatePartitions
from quafka_mesh_ops.ops.share_groups import ShareGroupTopics, ShareHeartbeat
from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import RecordedDisk, moments
from tests.crash.share_workload import Recipe, explore
from tests.support.no_threads import no_threads
from tests.support.suites import more
from tests.unit.broker.tools import ORG, context, running_state


async def test_no_cut_makes_a_group_forget_the_partitions_that_it_knew() -> None:
    """They are known when the member's first heartbeat is answered, and growth changes nothing."""
    rng, disk = random.Random(1), RecordedDisk()
    join = ShareHeartbeat("g", "m", 0, topics=["t"], is_whole=True)
    async with running_state(disk, checkpoint_bytes=1_000) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        assert not (await share_groups.heartbeat(state, context(), join)).error_code
        answered = len(disk.operations)
        assert not (await partitions.create(state, context(), CreatePartitions("t", 2))).error_code
        leave = ShareHeartbeat("g", "m", -1)
        assert not (await share_groups.heartbeat(state, context(), leave)).error_code
        assert not (await share_groups.heartbeat(state, context(), join)).error_code
    cuts = [each for each in moments(disk) if each.operations >= answered]
    assert len(cuts) > 5
    for at, moment in enumerate(cuts):
        left = after_power_cut(moment, Fate(KINDS[at % len(KINDS)], rng), rng)
        with no_threads():
            async with running_state(left) as state:
                question = ShareGroupTopics("g", [topic.uuid])
                found = await share_groups.topics(state, context(), question)
                assert found.first_partitions == [1], moment.operations


@pytest.mark.parametrize(
    "recipe",
    [Recipe(1), *more([Recipe(2, turns=14), Recipe(3, full=0.05), Recipe(4, sync=0.02)])],
    ids=lambda recipe: f"seed{recipe.seed}",
)
async def test_no_cut_delivers_an_ended_record_or_loses_one(recipe: Recipe) -> None:
    assert await explore(recipe) > 20
