"""Whose a shard is that this broker's node has, according to the manifest."""

from __future__ import annotations

from quafka_broker.cluster.own_epochs import OwnEpochs
from quafka_proto.chain_format import Owner, ShardManifest

SHARD = 2
ME = Owner("me", "me:0")


def manifest(epoch: int, node: str = "me") -> ShardManifest:
    return ShardManifest(SHARD, epoch=epoch, owner=Owner(node, f"{node}:{epoch}"))


def test_what_is_there_at_the_start_is_of_an_earlier_run() -> None:
    epochs = OwnEpochs(ME)
    epochs.see(SHARD, manifest(7))
    assert epochs.is_own(SHARD, manifest(7))
    assert epochs.rival(SHARD, manifest(7)) == ""


def test_a_later_epoch_of_this_node_is_another_process_with_its_key() -> None:
    epochs = OwnEpochs(ME)
    epochs.see(SHARD, manifest(7))
    epochs.begin(SHARD, 8)
    epochs.see(SHARD, manifest(9))
    assert not epochs.is_own(SHARD, manifest(9))
    assert epochs.rival(SHARD, manifest(9)) == "me:9"


def test_a_takeover_that_failed_is_own() -> None:
    epochs = OwnEpochs(ME)
    epochs.see(SHARD, None)
    epochs.begin(SHARD, 1)
    assert epochs.is_own(SHARD, manifest(1))


def test_this_process_is_no_rival_of_itself() -> None:
    """As after a takeover that was cancelled, or when a store has an older state again."""
    epochs = OwnEpochs(ME)
    epochs.see(SHARD, manifest(7))
    assert epochs.is_own(SHARD, ShardManifest(SHARD, epoch=3, owner=ME))


def test_a_shard_that_was_there_is_no_new_one() -> None:
    epochs = OwnEpochs(ME)
    epochs.see(SHARD, None)
    assert not epochs.was_there(SHARD)
    epochs.begin(SHARD, 1)
    assert epochs.was_there(SHARD)


def test_other_brokers_are_no_rivals() -> None:
    epochs = OwnEpochs(ME)
    epochs.see(SHARD, manifest(7, "other"))
    for found in (manifest(7, "other"), manifest(8, "other"), ShardManifest(SHARD, epoch=9)):
        assert not epochs.is_own(SHARD, found)
        assert epochs.rival(SHARD, found) == ""
