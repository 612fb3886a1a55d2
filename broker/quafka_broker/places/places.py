"""Decides which fetches are answered by place, and builds the places.

A gateway may read a segment itself if every byte of the segment is verified, and if the gateway may
serve every org with records in it: a descriptor gives access to the whole file. The broker's own
org, 0, has the names and offsets of all orgs. A gateway that may not serve every org gets sealed
segments only: any org may append to the active one.

If the log is in an object store, a gateway with access to the store reads sealed segments there. It
verifies each batch itself, and its places have only the bytes of the fetch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from quafka_broker.journals.internal_topics import INTERNAL_ORG
from quafka_broker.places.descriptor_server import DescriptorConnection, DescriptorServer
from quafka_broker.wal.disk import object_path
from quafka_broker.wal.log import Log
from quafka_broker.wal.runs import EntryRun
from quafka_broker.wal.segment import Segment
from quafka_mesh_ops.grants import EVERY_ORG, Grant, permits
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.places import ObjectPlace, OpenPlacesResp, file_key, pack_extents
from quafka_mesh_ops.rights import NEEDS
from quafka_proto.log_format import ENTRY_HEADER_SIZE

log = logging.getLogger("quafka.broker.places")

LEAST_BYTES = 64 << 10
"""Smaller answers are cheaper by value."""
_SEGMENTS = 8
"""The maximum number of segments in one partition's answer: fewer than a gateway's descriptors."""
_NEED = NEEDS[OpCode.FETCH]
_EVERY_ORG = _NEED._replace(every_org=True)


class Places:
    """Answers by place of one broker; none before `start`."""

    def __init__(self, wal: Log) -> None:
        self._log = wal
        self._server: DescriptorServer | None = None
        self._grants: Callable[[NodeId], Grant] = lambda _node: ()
        self.bytes = 0
        """Bytes of batches in answers by place."""

    def start(self, data: Path, grants: Callable[[NodeId], Grant]) -> None:
        """Serve descriptors to nodes with these grants, by a socket in the data folder.

        Raises:
            OSError: the socket cannot be made.
        """
        server = DescriptorServer(data)
        server.start()
        self._server, self._grants = server, grants
        self._log.verification.when_withdrawn(server.withdraw)

    def close(self) -> None:
        """Stop serving descriptors; gateways close theirs."""
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def descriptors(self) -> int:
        """The number of descriptors that gateways have."""
        return sum(len(each.handed) for each in self._connections())

    @property
    def gateways(self) -> int:
        """The number of gateway processes that take places."""
        return len(self._connections())

    @property
    def refused(self) -> int:
        """The number of refused connections."""
        return 0 if self._server is None else self._server.refused

    def open(self, peer: NodeId) -> OpenPlacesResp:
        """The answer to a node's op OPEN_PLACES."""
        if self._server is None:
            return OpenPlacesResp("")
        return OpenPlacesResp(str(self._server.folder), self._server.token(peer))

    def enforce(self) -> None:
        """End the connections of nodes that may no longer have their descriptors."""
        for connection in self._connections():
            held = connection.handed.values()
            if not all(self._may_have(connection.peer, segment) for segment in held):
                log.warning("revoked the descriptors of node %s", connection.peer[:16])
                connection.revoke()
            elif not self._grants(connection.peer):
                connection.revoke()

    def of_reader(
        self, peer: NodeId, number: int, *, objects: bool
    ) -> Callable[[Sequence[EntryRun]], list[ObjectPlace] | None] | None:
        """The function that makes places for a fetch; None: the whole answer is by value.

        `number`: that of its connection for descriptors; `objects`: whether it reads the store's
        objects.
        """
        if objects:
            return self._in_objects
        connection = self.connection(peer, number) if number else None
        return None if connection is None else partial(self.places, connection)

    def connection(self, peer: NodeId, number: int) -> DescriptorConnection | None:
        """The connection that a fetch names; None: answer it by value."""
        return None if self._server is None else self._server.connection(peer, number)

    def _in_objects(self, runs: Sequence[EntryRun]) -> list[ObjectPlace] | None:
        """The places of these runs' batches in the store; None: answer by value."""
        size = _size(runs)
        paths = [object_path(run.segment.log) for run in runs]
        if size < LEAST_BYTES or None in paths:
            return None
        self.bytes += size
        return [_place(run, path) for run, path in zip(runs, paths, strict=True) if path]

    def places(
        self, connection: DescriptorConnection, runs: Sequence[EntryRun]
    ) -> list[ObjectPlace] | None:
        """The places of these runs' batches; None: answer by value."""
        size = _size(runs)
        if size < LEAST_BYTES:
            return None
        segments = dict.fromkeys(run.segment for run in runs)
        if len(segments) > _SEGMENTS:
            return None
        for segment in segments:
            if not self._log.verification.is_good(segment):
                return None
            if _file_key(segment) not in connection.handed and not self._may_have(
                connection.peer, segment
            ):
                return None
            if not connection.hand_over(segment):
                return None
        self.bytes += size
        return [_place(run, _file_key(run.segment)) for run in runs]

    def _may_have(self, peer: NodeId, segment: Segment) -> bool:
        grant = self._grants(peer)
        if permits(grant, _EVERY_ORG, EVERY_ORG[0][0]):
            return True
        if not self._log.verification.is_sealed(segment) or INTERNAL_ORG in segment.orgs:
            return False
        return all(permits(grant, _NEED, org) for org in segment.orgs)

    def _connections(self) -> list[DescriptorConnection]:
        return [] if self._server is None else self._server.connections()


def _file_key(segment: Segment) -> str:
    return file_key(segment.number, segment.salt)


def _size(runs: Sequence[EntryRun]) -> int:
    return sum(row.length for run in runs for row in run.rows)


def _place(run: EntryRun, key: str) -> ObjectPlace:
    return ObjectPlace(
        key,
        pack_extents(
            (row.position + ENTRY_HEADER_SIZE, row.length, row.base_offset, row.record_count)
            for row in run.rows
        ),
    )
