"""Reads and swaps a shard's manifest in the store."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import NamedTuple

from quafka_broker.chain.attempts import ANSWERS, Attempts
from quafka_broker.chain.store import ChainStore
from quafka_objects.errors import ObjectNotFoundError
from quafka_objects.store import ETag
from quafka_proto.chain_format import (
    ShardManifest,
    decode_manifest,
    encode_manifest,
    manifest_path,
)


class StoredManifest(NamedTuple):
    """A manifest, and the ETag to replace it by."""

    manifest: ShardManifest
    etag: ETag


async def read_manifest(
    store: ChainStore, shard: int, attempts: Attempts | None = None
) -> StoredManifest | None:
    """Read a shard's manifest, however long the store takes to answer; None: it has none yet.

    Raises:
        Malformed: it is damaged.
    """
    path = manifest_path(shard)
    attempts = attempts or Attempts(f"reading {path}")
    try:
        found = await attempts.until_answered(lambda: store.get(path))
    except ObjectNotFoundError:
        return None
    return StoredManifest(decode_manifest(found.data, shard), found.etag)


async def swap_manifest(
    store: ChainStore,
    before: StoredManifest | None,
    after: ShardManifest,
    random: Random,
    attempts: Attempts,
) -> tuple[bool, StoredManifest | None]:
    """Write `after` if the manifest is still `before`; returns whether it was, and the manifest.

    All attempts write the same bytes, so an attempt whose answer was lost is found by its nonce. An
    attempt that arrives late finds another manifest, and is refused. If the call is cancelled, or
    another writer follows at once, the write may have taken effect nevertheless.

    Raises:
        Malformed: the present manifest is damaged.
    """
    path = manifest_path(after.shard)
    after = replace(after, nonce=f"{random.getrandbits(64):016x}")
    data = encode_manifest(after)
    while True:
        try:
            if before is None:
                etag = await attempts.once(lambda: store.create(path, data))
            else:
                etag = await attempts.once(partial(store.replace, path, data, before.etag))
        except ANSWERS:
            found = await read_manifest(store, after.shard, attempts)
            if found is not None and found.manifest.nonce == after.nonce:
                return True, found
            if found != before:
                return False, found
        except OSError:
            pass
        else:
            return True, StoredManifest(after, etag)
        await attempts.pause()


def taken_by(found: StoredManifest | None) -> str:
    """The reason for a FencedError, from the manifest that has replaced this owner's."""
    if found is None:
        return "the manifest was deleted"
    owner = found.manifest.owner
    return f"{owner.node if owner else 'another broker'} has taken over the shard"
