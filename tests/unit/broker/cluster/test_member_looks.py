"""What a broker of a cluster concludes from the manifests that it has read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from quafka_broker.cluster.hosted_shard import HostedShard, Hosting
from quafka_broker.cluster.member import ClusterMember
from quafka_broker.cluster.shard_map import ShardMap
from quafka_broker.stored_log import LogStore, join_cluster
from quafka_mesh_ops.allow_list import AllowList
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.folder import FolderStore
from quafka_proto.chain_format import Manifest, Owner, encode_manifest, manifest_path
from quafka_proto.cluster_format import ClusterFile
from quafka_telemetry.startup import StartupError

ME, RIVAL, OTHER = Owner("a" * 64, "a:1"), Owner("a" * 64, "b:1"), Owner("c" * 64, "c:1")


class OneShard:
    """A broker in a cluster of one shard, whose log is not opened."""

    def __init__(self, folder: Path) -> None:
        self.objects = FolderStore(folder)
        self.store = LogStore(self.objects, AsyncObjectStore(self.objects, 1))
        self.member: Any
        self.hosted = mock.AsyncMock(broken="")

    async def join(self) -> None:
        cluster = await join_cluster(self.store, ClusterFile("a-cluster", 1, by_name=True))
        hosting = mock.Mock(store=self.store, cluster=cluster, owner=ME, allowed=AllowList(()))
        self.member = ClusterMember(cast(Hosting, hosting), ShardMap(), mock.Mock())
        self.member._notices = mock.Mock()

    def has_owner(self, owner: Owner, epoch: int) -> Manifest:
        manifest = Manifest(0, epoch, owner, nonce=str(epoch))
        self.objects.put(manifest_path(0), encode_manifest(manifest))
        return manifest

    async def open(self, *_: object) -> HostedShard:
        """Take the shard, as `HostedShard.open` does."""
        manifest = self.has_owner(ME, 1)
        chain = mock.Mock(epoch=1, manifest=manifest, failure=None)
        self.hosted.stored = mock.Mock(chain=chain)
        return cast(HostedShard, self.hosted)

    async def look(self) -> None:
        await self.member._read()
        await self.decide()

    async def decide(self) -> None:
        self.member._decide()
        while self.member._moving:
            await asyncio.wait(self.member._moving.values())
            await asyncio.sleep(0)


@pytest.fixture
async def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OneShard]:
    found = OneShard(tmp_path)
    await found.join()
    monkeypatch.setattr(HostedShard, "open", found.open)
    yield found
    await found.store.close()


async def test_a_new_shard_that_is_lost_again_is_not_taken_for_one_that_the_store_has_lost(
    one: OneShard,
) -> None:
    await one.look()
    assert list(one.member.hosted) == [0]
    one.has_owner(RIVAL, 2)
    one.hosted.stored.on_lost("another broker has taken it")
    await one.decide()  # its manifest was last read before it was made
    assert one.member.hosted == {}
    assert one.member.problems == {}


async def test_a_shard_that_the_store_has_lost_is_not_made_anew(one: OneShard) -> None:
    await one.look()
    one.objects.delete(manifest_path(0))
    one.hosted.stored.on_lost("its manifest is gone")
    await one.look()
    assert one.member.hosted == {}
    assert one.member.problems == {0: "the store has lost the description of shard 0"}


async def test_a_problem_ends_when_another_broker_has_the_shard(
    one: OneShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = mock.AsyncMock(side_effect=StartupError("the folder is damaged"))
    monkeypatch.setattr(HostedShard, "open", failing)
    await one.look()
    assert one.member.problems == {0: "the folder is damaged"}
    one.has_owner(OTHER, 1)
    await one.look()
    assert one.member.problems == {}
