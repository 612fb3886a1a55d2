"""A Kafka cluster, found from its bootstrap servers. Each request goes to the broker that a Kafka
client would send it to: any broker, a leader, or a coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self, TypeVar

from quafka_client.connection import CLIENT_ID, ClientConnection
from quafka_client.errors import ClientError, RequestRefusedError, UnreachableError, check
from quafka_client.security import NONE, ClientSecurity
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Request, Response
from quafka_proto.schema.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quafka_proto.schema.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_AGAIN_SECONDS = 0.2
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
_KINDS = {GROUP: "group", TRANSACTION: "transactional id"}

R = TypeVar("R", bound=Response)


class ClientCluster:
    """An async context manager: connects on entering. Not for several tasks at once."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        timeout: float = 10.0,
        security: ClientSecurity = NONE,
        *,
        reopens: bool = False,
        client_id: str = CLIENT_ID,
    ) -> None:
        """`timeout` bounds each connection and each answer, in seconds.

        `reopens`: a request opens a connection that was lost. `client_id`: what gateways know its
        requests by, in traces and quotas.
        """
        self._reopens = reopens
        self._client_id = client_id
        self._bootstrap = bootstrap
        self._security = security
        self.timeout = timeout
        self._any: ClientConnection | None = None
        self._nodes: dict[int, ClientConnection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}

    async def __aenter__(self) -> Self:
        failures: list[ClientError] = []
        for host, port in self._bootstrap:
            connection = ClientConnection(
                host,
                port,
                self.timeout,
                self._security,
                client_id=self._client_id,
                reopens=self._reopens,
            )
            try:
                await connection.open()
            except ClientError as e:
                failures.append(e)
                continue
            self._any = connection
            return self
        raise failures[0]

    async def __aexit__(self, *_: object) -> None:
        """Disconnect for good: later requests raise UnreachableError."""
        connections = {*self._nodes.values(), self.any}
        for connection in connections:
            connection.left = True
        for connection in connections:
            await connection.close()

    @property
    def any(self) -> ClientConnection:
        """The bootstrap connection, for requests that any broker can answer."""
        assert self._any is not None
        return self._any

    async def call(self, request: Request, answer: type[R]) -> R:
        """Send a request over the bootstrap connection. Raises ClientError."""
        return await self.any.call(request, answer)

    async def node(self, node_id: int) -> ClientConnection:
        """The connection to a broker, at the address that the cluster advertises.

        Raises:
            ClientError: the broker cannot be reached, or the cluster gives no address for it.
        """
        found = self._nodes.get(node_id)
        if found is not None:
            return found
        if self.any.left:
            return self.any  # whose requests say so
        if node_id not in self._addresses:
            await self.metadata([])
        address = self._addresses.get(node_id)
        if address is None:
            raise UnreachableError(
                f"broker {node_id} is unavailable: the cluster gives no address for it"
            )
        if address == (self.any.host, self.any.port):
            connection = self.any
        else:
            connection = ClientConnection(
                *address,
                self.timeout,
                self._security,
                client_id=self._client_id,
                reopens=self._reopens,
            )
            try:
                await connection.open()
            except ClientError as e:
                what = str(e).partition("; ")[0]
                raise UnreachableError(
                    f"the advertised address {connection.address} does not work: {what}; "
                    "set advertised.listener of the gateway (`quafka doctor`)"
                ) from e
            connection.left = self.any.left
        self._nodes[node_id] = connection
        return connection

    async def nodes(self) -> list[ClientConnection]:
        """Connections to all brokers."""
        await self.metadata([])
        return [await self.node(node_id) for node_id in sorted(self._addresses)]

    async def metadata(
        self, topics: Sequence[str] | None, *, auto_create: bool = False
    ) -> MetadataResponse:
        """The cluster's brokers and these topics; None: all topics.

        `auto_create`: let the server create the missing ones, if its settings allow it.
        """
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        if asked is None and self.any.version_of(MetadataRequest) == 0:
            asked = []  # in version 0 an empty list means all topics
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=auto_create)
        answer = await self.call(request, MetadataResponse)
        self._addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        return answer

    async def topic(self, name: str, *, auto_create: bool = False) -> MetadataResponseTopic:
        """One topic. Raises RequestRefusedError if it does not exist."""
        give_up = self._give_up()
        while True:
            (found,) = (await self.metadata([name], auto_create=auto_create)).topics
            # A topic that was just created may have no leader yet.
            later = found.error_code == ErrorCode.LEADER_NOT_AVAILABLE or (
                auto_create and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if not later or self._now() >= give_up:
                break
            await asyncio.sleep(_AGAIN_SECONDS)
        check(found.error_code, f"topic {name!r}")
        return found

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _give_up(self) -> float:
        return self._now() + self.timeout

    async def coordinator(self, key: str, kind: int = GROUP) -> ClientConnection:
        """The broker that coordinates a group or a transactional id. Raises ClientError."""
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        give_up = self._give_up()
        while True:
            answer = await self.call(request, FindCoordinatorResponse)
            found = answer.coordinators[0] if answer.coordinators else answer
            # Apache Kafka creates the coordinators' topics at the first such request.
            later = found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            if not later or self._now() >= give_up:
                break
            await asyncio.sleep(_AGAIN_SECONDS)
        check(found.error_code, f"{_KINDS[kind]} {key!r}", found.error_message)
        self._addresses.setdefault(found.node_id, (found.host, found.port))
        return await self.node(found.node_id)

    async def each_leader(
        self, topic: MetadataResponseTopic
    ) -> list[tuple[ClientConnection, list[int]]]:
        """A topic's partitions by their leader. Raises ClientError."""
        by_node: dict[int, list[int]] = {}
        for partition in topic.partitions:
            if partition.leader_id < 0:
                raise RequestRefusedError(
                    ErrorCode.LEADER_NOT_AVAILABLE,
                    f"partition {partition.partition_index} of {topic.name!r} has no leader; "
                    "run `quafka doctor` to check its broker",
                )
            by_node.setdefault(partition.leader_id, []).append(partition.partition_index)
        return [(await self.node(node), sorted(its)) for node, its in sorted(by_node.items())]
