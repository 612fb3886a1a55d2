"""The setting `mesh.brokers`, and ops to brokers that are not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_broker.cluster.mesh_peers import MeshPeers, grants_of
from quafka_broker.config.settings import broker_addresses
from quafka_broker.transactions.peers import NoPeers, PeerError
from quafka_mesh_ops.grants import by_node, parse_entry, permits
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.branches import ResolveTransactions
from quafka_mesh_ops.rights import NEEDS, MeshRight
from quafka_telemetry.tracing import Tracer

A, B = "a" * 64, "b" * 64


def test_the_setting() -> None:
    found = broker_addresses(f" {A.upper()}@h:1 , {B}@[::1]:2,")
    assert found == (f"{A}@h:1", f"{B}@[::1]:2")
    assert broker_addresses("") == ()


@pytest.mark.parametrize(
    "text",
    [A, f"{A}@", f"{A}@h", f"{A}@h:0", "x@h:1", f"{A}@h:1,{A}@h:2", f"{A}@h:1,{B}@h:1", "@h:1"],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        broker_addresses(text)


def test_an_entry_grants_the_right_to_coordinate_alone() -> None:
    (grant,) = by_node(map(parse_entry, grants_of([f"{A}@h:1"]))).values()
    granted = {need.right for need in NEEDS.values() if permits(grant, need, 7)}
    assert granted == {MeshRight.COORDINATE}
    served = by_node([parse_entry(f"{A} orgs=7")])[A]
    assert not any(permits(served, n, 7) for n in NEEDS.values() if n.right is MeshRight.COORDINATE)


async def test_a_broker_is_not_its_own_peer(tmp_path: Path) -> None:
    identity = Identity.create(tmp_path / "node.key")
    brokers = (f"{identity.node_id}@127.0.0.1:1", f"{A}@127.0.0.1:2")
    peers = MeshPeers(brokers, identity, Tracer(), datagram_size=None, batched=True)
    assert peers.others == (A,)
    for each in (peers, NoPeers()):
        with pytest.raises(PeerError, match="is not in mesh"):
            await each.call(B, ResolveTransactions([]), 1)
