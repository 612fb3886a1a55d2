"""Ops on a shard that moves, and how a gateway learns of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from quafka_gateway.cluster.broker_link import MOVE_SECONDS, BrokerLink, BrokerUnavailableError
from quafka_gateway.cluster.follower import ClusterFollower
from quafka_gateway.cluster.shard_places import ShardPlaces
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, PeerUnavailableError
from quafka_mesh_ops.ops.cluster import ClusterBroker, ClusterMap, ClusterMapResp, ShardOwner
from quafka_mesh_ops.ops.probe import Probe, ProbeResp
from quafka_objects.meter import StoreMeter
from quafka_proto.errors import ErrorCode

MOVED = OpFailedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
HERE = ProbeResp("v", 1)


class Client:
    """A mesh client with these answers, one after the other."""

    def __init__(self, *answers: ProbeResp | Exception, disconnected: float = 0.0) -> None:
        self._answers = list(answers)
        self.seconds_disconnected = disconnected
        self.connected = not disconnected
        self.said_goodbye = True
        self.calls = 0

    async def call(self, _op: Probe, **_more: object) -> ProbeResp:
        self.calls += 1
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def link(client: Client, shard: str = "shard:1") -> BrokerLink:
    return BrokerLink(cast(MeshClient, client), 1, shard)


async def test_an_op_that_a_shard_refuses_while_it_moves_is_sent_once_more() -> None:
    client = Client(MOVED, HERE)
    assert await link(client).call(Probe(), None) == HERE
    client = Client(MOVED, MOVED, HERE)
    with pytest.raises(BrokerUnavailableError) as refused:
        await link(client).call(Probe(), None)
    assert (refused.value.code, client.calls) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


async def test_a_broker_that_is_no_shard_gets_no_second_op() -> None:
    client = Client(MOVED, HERE)
    with pytest.raises(BrokerUnavailableError):
        await link(client, "").call(Probe(), None)
    assert client.calls == 1


def test_ops_are_held_for_a_shard_that_has_just_left() -> None:
    assert link(Client(disconnected=MOVE_SECONDS - 1)).usable
    assert link(Client(disconnected=MOVE_SECONDS - 1)).wait_among_others(10) == 1
    assert not link(Client(disconnected=MOVE_SECONDS + 1)).usable
    assert not link(Client(disconnected=0.1), "").usable
    killed = Client(disconnected=0.1)
    killed.said_goodbye = False
    assert not link(killed).usable
    assert link(Client()).node_id == "shard:1"


class Broker:
    """A broker that has these maps, and is gone after the last one."""

    refusal = ""

    def __init__(self, *maps: ClusterMapResp) -> None:
        self._maps = list(maps)
        self.asked: list[int] = []

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def wait_connected(self, _timeout: float) -> bool:
        return bool(self._maps)

    async def call(self, op: ClusterMap, **_more: object) -> ClusterMapResp:
        self.asked.append(op.known)
        if not self._maps:
            raise PeerUnavailableError("it is gone")
        return self._maps.pop(0)


def a_map(version: int, *owners: str, cluster: str = "c") -> ClusterMapResp:
    shards = [ShardOwner(version, name, f"{name}:1") for name in owners]
    return ClusterMapResp(cluster, version, shards, [ClusterBroker(o, f"{o}:1") for o in owners])


async def followed(
    brokers: dict[str, Broker], enough: int, seed: str = "a:1"
) -> list[tuple[list[str], Sequence[int]]]:
    """What a follower reports until it has reported so often."""
    heard: list[tuple[list[str], Sequence[int]]] = []
    done = asyncio.Event()

    def changed(places: ShardPlaces, moved: Sequence[int]) -> None:
        heard.append(([owner.address for owner in places], list(moved)))
        if len(heard) == enough:
            done.set()

    def dial(address: str) -> MeshClient:
        return cast(MeshClient, brokers.get(address, Broker()))

    follower = ClusterFollower([seed], dial, changed, StoreMeter())
    async with asyncio.timeout(10):
        await follower.start()
        await done.wait()
    await follower.close()
    return heard


async def test_moves_are_learnt_and_another_broker_is_asked_when_one_is_gone() -> None:
    a = Broker(a_map(1, "a", "a"), a_map(2, "a", "b"))
    b = Broker(a_map(3, "b", "b"))
    heard = await followed({"a:1": a, "b:1": b}, 3)
    assert heard == [
        (["a:1", "a:1"], [0, 1]),
        (["a:1", "b:1"], [1]),
        (["b:1", "b:1"], [0]),
    ]
    assert a.asked == [-1, 1]
    assert b.asked[0] == -1  # its versions are its own


async def test_a_broker_with_a_folder_is_where_it_was_found() -> None:
    local = ClusterMapResp("", 1, [ShardOwner(0, "n", "0.0.0.0:9192")], [])
    heard = await followed({"kafka.example:1": Broker(local)}, 1, "kafka.example:1")
    assert heard == [(["kafka.example:1"], [0])]


async def test_a_map_of_another_cluster_changes_nothing() -> None:
    a = Broker(a_map(1, "a"), a_map(2, "b", cluster="other"), a_map(3, "b"))
    assert await followed({"a:1": a}, 2) == [(["a:1"], [0]), (["b:1"], [0])]
