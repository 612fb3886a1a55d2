"""Takes a cut of the log of a remote broker, and reads its files over the mesh."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from quafka_broker.snapshots.cut import Cut, decode_cut
from quafka_broker.snapshots.cut_files import CutFiles
from quafka_broker.snapshots.mesh_link import (
    WHOLE_LOG_ORG,
    MeshLink,
    OpRefusedError,
    loop_in_thread,
)
from quafka_broker.snapshots.remote_files import RemoteFiles, RemoteOrgFiles
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.snapshots import PinOrg, PinSnapshot, UnpinOrg, UnpinSnapshot
from quafka_mesh_ops.settings import split_address
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import Tracer

_CONNECT_SECONDS = 10.0
_PIN_SECONDS = 2_000.0
"""Longer than a broker copies records from other systems."""
_UNPIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote broker, and the key of this node."""

    address: str
    node_key: Path
    broker_id: NodeId


@contextmanager
def remote_cut(remote: Remote, org: int | None = None) -> Generator[tuple[Cut, CutFiles]]:
    """Take a cut of a broker's log, and hold its files within the block. Blocks.

    With an `org` only its entries are read. Brokers without the op for this send the whole log.

    Raises:
        StartupError: the key does not exist.
        OSError: the broker cannot be reached, or refuses.
        Malformed: the broker is of another version.
    """
    host, port = split_address(remote.address)
    identity = Identity.load(remote.node_key)
    with loop_in_thread() as loop:
        client = MeshClient(host, port, identity, {remote.broker_id}, Tracer())
        link = MeshLink(loop, client, remote.address)
        link.run(client.start())
        try:
            if not link.run(client.wait_connected(_CONNECT_SECONDS)):
                raise OSError(
                    f"no connection to the broker at {remote.address}; are its address and node "
                    f"id right, and is {identity.node_id} on its allow-list?"
                )
            with _pinned(link, org) as found:
                yield found
        finally:
            link.run(client.close())


@contextmanager
def _pinned(link: MeshLink, org: int | None) -> Generator[tuple[Cut, CutFiles]]:
    """Request a cut of the whole log or of an org, with its files held for the block."""
    if org is None:
        with _pinned_log(link) as found:
            yield found
        return
    try:
        pinned = link.call(PinOrg(), _PIN_SECONDS, org)
    except OpRefusedError as e:
        if e.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        with _pinned_log(link) as found:
            yield found
        return
    with _unpinned(link, UnpinOrg(pinned.pin), org):
        yield decode_cut(bytes(pinned.about)), RemoteOrgFiles(link, pinned.pin, org)


@contextmanager
def _pinned_log(link: MeshLink) -> Generator[tuple[Cut, CutFiles]]:
    pinned = link.call(PinSnapshot(), _PIN_SECONDS)
    with _unpinned(link, UnpinSnapshot(pinned.pin), WHOLE_LOG_ORG):
        yield decode_cut(bytes(pinned.about)), RemoteFiles(link, pinned.pin)


@contextmanager
def _unpinned(link: MeshLink, unpin: UnpinSnapshot | UnpinOrg, org: int) -> Generator[None]:
    """Remove the pin at the end of the block."""
    try:
        yield
    finally:
        with suppress(OSError):  # the pin's lease ends by itself
            link.call(unpin, _UNPIN_SECONDS, org)
