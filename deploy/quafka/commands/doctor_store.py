"""Checks of `quafka doctor --store`: whether an object store can hold a log."""

from __future__ import annotations

from datetime import UTC, datetime

from quafka_client.checks.findings import Report
from quafka_loop import clock
from quafka_objects.address import open_store
from quafka_objects.errors import (
    AccessDeniedError,
    StoreAddressError,
    TransientStoreError,
    UnsafeStoreError,
)
from quafka_objects.race import CREATORS, WRITERS, verify_store
from quafka_objects.retries import RetryPolicy
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import MANIFESTS, ShardManifest, decode_manifest
from quafka_proto.errors import Malformed

_ATTEMPT_SECONDS = 10.0
_PATIENCE = RetryPolicy(seconds=20.0)
_SLOW = 0.25
"""Seconds per contended write above which producers with acks notice the delay."""


def check_store(report: Report, address: str) -> None:
    """Open the store, race writers in it, and report who owns the shards below the prefix."""
    try:
        store = open_store(address, attempt_seconds=_ATTEMPT_SECONDS)
        proof = verify_store(store, patience=_PATIENCE)
    except UnsafeStoreError as e:
        report.fail("store", str(e), "keep the log in another store: see docs/object-store.md")
        return
    except StoreAddressError as e:
        report.fail("store", f"{address!r}: {e}", "name a bucket, as in s3://bucket/prefix")
        return
    except AccessDeniedError as e:
        fix = "give the credentials the right to read, write, list and delete below the prefix"
        report.fail("store", str(e), fix)
        return
    except TransientStoreError as e:
        report.fail("store", str(e), "check AWS_ENDPOINT_URL and the network; try again later")
        return
    except OSError as e:
        report.fail("store", str(e), "check the bucket's name, region and endpoint")
        return
    report.ok("create", f"one of {CREATORS} creators won, in each of {proof.creations} races")
    report.ok("swap", f"one of {WRITERS} writers won, in each of {proof.swaps} rounds")
    report.ok("list", "written objects can be read and listed at once")
    took = f"median {proof.median * 1e3:.0f} ms, slowest {proof.slowest * 1e3:.0f} ms"
    if proof.median > _SLOW:
        fix = "use a bucket in this region, or a faster class of storage"
        report.warn("latency", f"a contended write takes {took}", fix)
    else:
        report.ok("latency", f"a contended write takes {took}")
    _shards(report, store)


def _shards(report: Report, store: ObjectStore) -> None:
    """Report the owners of the shards of the cluster at this prefix, if there is one."""
    try:
        for found in store.list_objects(MANIFESTS):
            name = found.path.rpartition("/")[2]
            if name.isdecimal():  # skip the leftovers of interrupted writes
                _shard(report, decode_manifest(store.read(found.path), int(name)))
    except (OSError, Malformed) as e:
        report.fail("shards", f"a manifest cannot be read: {e}", "see docs/object-store.md")


def _shard(report: Report, manifest: ShardManifest) -> None:
    name = f"shard {manifest.shard}, epoch {manifest.epoch}"
    owner = manifest.owner
    if owner is None:
        report.ok("shards", f"{name}: released, no broker owns it")
        return
    ends = datetime.fromtimestamp(manifest.lease_until_ms / 1000, UTC)
    where = f"{name}: {owner.node[:16]} at {owner.address}"
    if manifest.lease_until_ms > clock.time() * 1000:
        report.ok("shards", where)
    else:
        message = f"{where} has not renewed its lease, which ended at {ends:%Y-%m-%d %H:%M:%S} UTC"
        report.warn("shards", message, "start a broker on this prefix, if none takes it over")
