"""What a broker of a cluster concludes from the manifests that it has read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from quafka_broker.cluster.hosted_shard import HostedShard, HostResources
from quafka_broker.cluster.member import ClusterMember
from quafka_broker.cluster.shard_map import ShardMap
from quafka_broker.shard.stored_log import LogStore, join_cluster
from quafka_mesh_ops.allow_list import AllowList
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.folder import FolderStore
from quafka_proto.chain_format import Owner, ShardManifest, encode_manifest, manifest_path
from quafka_proto.cluster_format import ClusterFile
from quafka_telemetry import semconv
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import TraceContext
from tests.support.recorded_spans import RecordedSpans

ME, RIVAL, OTHER = Owner("a" * 64, "a:1"), Owner("a" * 64, "b:1"), Owner("c" * 64, "c:1")


class OneShard:
    """A broker in a cluster of one shard, whose log is not opened."""

    def __init__(self, folder: Path) -> None:
        self.objects = FolderStore(folder)
        self.store = LogStore(self.objects, AsyncObjectStore(self.objects, 1))
        self.member: Any
        self.hosted = mock.AsyncMock(broken="")
        self.spans = RecordedSpans(ratio=0)

    async def join(self) -> None:
        cluster = await join_cluster(self.store, ClusterFile("a-cluster", 1, by_name=True))
        hosting = mock.Mock(store=self.store, cluster=cluster, owner=ME, allowed=AllowList(()))
        self.member = ClusterMember(
            cast(HostResources, hosting), ShardMap(), mock.Mock(tracer=self.spans.tracer)
        )
        self.member.moves._notices = mock.Mock()

    def has_owner(self, owner: Owner | None, epoch: int) -> ShardManifest:
        manifest = ShardManifest(0, epoch, owner, nonce=str(epoch))
        self.objects.put(manifest_path(0), encode_manifest(manifest))
        return manifest

    async def open(self, *_: object) -> HostedShard:
        """Take the shard, as `HostedShard.open` does."""
        manifest = self.has_owner(ME, 1)
        chain = mock.Mock(epoch=1, manifest=manifest, failure=None)
        log = mock.Mock(epochs=mock.Mock(current=3))
        self.hosted.stored = mock.Mock(chain=chain, log=log)
        return cast(HostedShard, self.hosted)

    async def look(self) -> None:
        await self.member._read()
        await self.decide()

    async def decide(self) -> None:
        self.member._decide()
        while self.member.moves.moving:
            await asyncio.wait(self.member.moves.moving.values())
            await asyncio.sleep(0)


@pytest.fixture
async def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OneShard]:
    found = OneShard(tmp_path)
    await found.join()
    monkeypatch.setattr(HostedShard, "open", found.open)
    yield found
    found.spans.close()
    await found.store.close()


async def test_a_new_shard_that_is_lost_again_is_not_taken_for_one_that_the_store_has_lost(
    one: OneShard,
) -> None:
    await one.look()
    assert list(one.member.moves.hosted) == [0]
    one.has_owner(RIVAL, 2)
    one.hosted.stored.on_lost("another broker has taken it")
    await one.decide()  # its manifest was last read before it was made
    assert one.member.moves.hosted == {}
    assert one.member.view.problems == {}


async def test_a_shard_that_the_store_has_lost_is_not_made_anew(one: OneShard) -> None:
    await one.look()
    one.objects.delete(manifest_path(0))
    one.hosted.stored.on_lost("its manifest is gone")
    await one.look()
    assert one.member.moves.hosted == {}
    assert one.member.view.problems == {0: "the store has lost the description of shard 0"}


async def test_a_problem_ends_when_another_broker_has_the_shard(
    one: OneShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = mock.AsyncMock(side_effect=StartupError("the folder is damaged"))
    monkeypatch.setattr(HostedShard, "open", failing)
    await one.look()
    assert one.member.view.problems == {0: "the folder is damaged"}
    one.has_owner(OTHER, 1)
    await one.look()
    assert one.member.view.problems == {}


async def test_each_takeover_is_a_trace_whatever_the_ratio(one: OneShard) -> None:
    await one.look()
    one.hosted.stored.on_lost("another broker has taken it")
    one.has_owner(None, 6)
    offer = TraceContext(1, 2)
    await one.member.moves._take_offered(0, offer)
    spans = one.spans.close()
    assert [span.name for span in spans if span.parent is not None] == [semconv.SHARD_LOOK] * 2
    new, offered = (span for span in spans if span.name == semconv.TAKE_OVER)
    assert (new.links, offered.links) == ([], [offer])
    shared = {
        semconv.SHARD: 0,
        semconv.NODE: ME.node,
        semconv.SAMPLED_BY: "always",
        semconv.LEADER_EPOCH: 3,
    }
    assert new.attributes == {**shared, semconv.REASON: "new", semconv.SHARD_EPOCH: 1}
    assert offered.attributes == {**shared, semconv.REASON: "released", semconv.SHARD_EPOCH: 7}


@pytest.mark.parametrize(("owner", "reason"), [(OTHER, "lease ended"), (ME, "earlier run")])
async def test_a_takeover_names_the_previous_owner(
    owner: Owner, reason: str, one: OneShard, caplog: pytest.LogCaptureFixture
) -> None:
    one.has_owner(owner, 4)
    await one.look()
    while not one.member.moves.hosted:
        await asyncio.sleep(1)
        await one.look()
    (span,) = (span for span in one.spans.close() if span.name == semconv.TAKE_OVER)
    assert span.attributes[semconv.PREVIOUS_OWNER] == owner.node
    assert span.attributes[semconv.REASON] == reason
    warnings = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    dead = f"shard 0 is taken over: broker {OTHER.node[:16]} at c:1 does not renew its lease"
    assert warnings == ([dead] if owner is OTHER else [])


async def test_a_takeover_that_fails_says_why(
    one: OneShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = mock.AsyncMock(side_effect=StartupError("the folder is damaged"))
    monkeypatch.setattr(HostedShard, "open", failing)
    await one.look()
    (span,) = (span for span in one.spans.close() if span.name == semconv.TAKE_OVER)
    assert span.error == "StartupError"


async def test_a_shard_that_is_given_up_for_another_broker_is_offered_in_its_trace(
    one: OneShard,
) -> None:
    await one.look()
    notice = mock.Mock()
    one.member.moves._notices.connected = mock.MagicMock()
    one.member.moves._notices.connected.return_value.__aenter__.return_value = notice

    async def taken() -> None:
        await asyncio.sleep(1)
        one.has_owner(OTHER, 2)

    taking = asyncio.create_task(taken())
    one.has_owner(None, 1)
    await one.member.moves.hand_over(0, OTHER.node, asyncio.Semaphore())
    await taking
    spans = one.spans.close()
    (whole,) = (span for span in spans if span.name == semconv.GIVE_UP)
    notice.send.assert_called_once_with(0, whole.context)
    assert whole.attributes == {
        semconv.SHARD: 0,
        semconv.NODE: ME.node,
        semconv.SHARD_EPOCH: 1,
        semconv.REASON: "placed elsewhere",
        semconv.NEXT_OWNER: OTHER.node,
        semconv.SAMPLED_BY: "always",
    }
    steps = [span.name for span in spans if span.parent == whole.context]
    assert steps == [semconv.SHARD_PREPARE, semconv.SHARD_AWAIT_OWNER]
    (waited,) = (span for span in spans if span.name == semconv.SHARD_AWAIT_OWNER)
    assert waited.ended - waited.start >= 900_000_000
