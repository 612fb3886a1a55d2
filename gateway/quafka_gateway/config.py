"""The gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from quafka_gateway.cluster import routes
from quafka_gateway.cluster.routes import Route
from quafka_mesh_ops import settings
from quafka_mesh_ops.identity import NodeId
from quafka_mesh_ops.settings import OpsSettings, setting
from quafka_telemetry import sampling
from quafka_telemetry.sampling import EdgeSampling, OrgRatio


class AddressLimit(NamedTuple):
    """How many connections one IP address may have."""

    host: str
    most: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.most}" if ":" in self.host else f"{self.host}:{self.most}"


def parse_address_limits(text: str) -> tuple[AddressLimit, ...]:
    """Read "192.0.2.1:100,[2001:db8::1]:0".

    Raises:
        ValueError: a part is no IP address with a number of 0 or more.
    """
    return tuple(_address_limit(part.strip()) for part in text.split(",") if part.strip())


def _address_limit(text: str) -> AddressLimit:
    host, _, most = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not most.isdecimal():
        raise ValueError(text)
    return AddressLimit(str(ip_address(bare)), int(most))


@dataclass(frozen=True, kw_only=True)
class EdgeSettings(OpsSettings):
    """What Kafka clients see."""

    listen: str = setting(
        "127.0.0.1:9092", "TCP address for Kafka clients; port 0 takes a free one",
        settings.address, settings.ADDRESS,
    )  # fmt: skip
    advertised_listener: str = setting(
        "", "address that clients are told to connect to; default: the listen address, by host "
        "name where that is all interfaces", settings.optional_address, settings.ADDRESS,
    )  # fmt: skip
    node_id: int = setting(
        0, "the broker id that clients see; gateways that share an advertised address share it",
        settings.whole(0, (1 << 31) - 1), "0 to 2147483647",
    )  # fmt: skip
    workers: int = setting(
        1, "gateway processes that share the listen address; limits in bytes and clients are each "
        "one's own", settings.whole(1, 64), "1 to 64",
    )  # fmt: skip
    org_id: int = setting(
        1, "the org whose topics this gateway serves", settings.whole(1, 0xFFFFFFFF),
        "1 to 4294967295",
    )  # fmt: skip
    socket_request_max_bytes: int = setting(
        104_857_600, "largest request accepted, in bytes", settings.whole(1_024, 100 << 20),
        "1024 to 104857600",
    )  # fmt: skip
    socket_request_stall_ms: int = setting(
        60_000, "a client that has begun to send a request may pause for so long, in ms",
        settings.whole(1_000, 86_400_000), "1000 to 86400000",
    )  # fmt: skip
    socket_response_stall_ms: int = setting(
        600_000, "a client may leave an answer unread for so long, in ms; only seconds while "
        "queued.max.response.bytes are held", settings.whole(1_000, 86_400_000),
        "1000 to 86400000",
    )  # fmt: skip
    socket_min_bytes_per_second: int = setting(
        16_384, "a client must send a request, and read an answer, at so many bytes a second",
        settings.whole(1, 1 << 30), "1 to 1073741824",
    )  # fmt: skip
    max_partitions_per_request: int = setting(
        20_000,
        "most partitions that one CreateTopics request may ask for (a topic without a number "
        "counts as one), and that one Metadata request may create",
        settings.whole(1, 10_000_000), "1 to 10000000",
    )  # fmt: skip
    queued_max_request_bytes: int = setting(
        512 << 20,
        "bytes of requests held at a time, of all clients together; above it nobody is read from",
        settings.whole(1 << 20, 1 << 40),
        "1048576 to 1099511627776",
    )
    queued_max_request_bytes_per_ip: int = setting(
        256 << 20,
        "bytes of requests held at a time of the clients at one address, but at least "
        "socket.request.max.bytes",
        settings.whole(1 << 20, 1 << 40),
        "1048576 to 1099511627776",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        1_000, "fetch sessions at a time; 0: none", settings.whole(0, 1_000_000), "0 to 1000000"
    )
    queued_max_response_bytes: int = setting(
        256 << 20,
        "bytes of answers held at a time, of all clients together; near it fetches are given less",
        settings.whole(1 << 20, 1 << 40),
        "1048576 to 1099511627776",
    )
    fetch_cache_bytes: int = setting(
        128 << 20, "bytes of record batches kept in memory for further consumers",
        settings.whole(0, 1 << 40), "0 to 1099511627776",
    )  # fmt: skip
    fetch_backfill_bytes: int = setting(
        4 << 20,
        "bytes that are read from the broker at a time for consumers that are behind",
        settings.whole(1 << 20, 1 << 30),
        "1048576 to 1073741824",
    )
    max_connections: int = setting(
        4_096, "clients at a time", settings.whole(1, 1_000_000), "1 to 1000000"
    )
    max_connections_per_ip: int = setting(
        2_048, "clients at a time from one address", settings.whole(0, (1 << 31) - 1),
        "0 to 2147483647",
    )  # fmt: skip
    max_connections_per_ip_overrides: tuple[AddressLimit, ...] = setting(
        (), "the same for some addresses", parse_address_limits,
        "address:number, separated by commas",
    )  # fmt: skip
    connections_max_idle_ms: int = setting(
        600_000, "a connection without a request for so long is closed, in ms",
        settings.whole(1_000, (1 << 31) - 1), "1000 to 2147483647",
    )  # fmt: skip
    trace_org_ratios: tuple[OrgRatio, ...] = setting(
        (),
        "which share of an org's requests is traced, where not that of OTEL_TRACES_SAMPLER_ARG",
        sampling.parse_org_ratios,
        "org=ratio, separated by commas; ratios from 0.0 to 1.0",
    )
    trace_spans_per_second: int = setting(
        1_000, "most spans that a gateway process begins; beyond it, requests are not traced; 0: "
        "no bound", settings.whole(0, 1_000_000), "0 to 1000000",
    )  # fmt: skip
    trace_slow_ms: int = setting(
        500, "a request that was not sampled is traced all the same if it takes as long, without "
        "the time for which it was parked; 0: none is", settings.whole(0, 3_600_000),
        "0 to 3600000",
    )  # fmt: skip
    trace_failed: bool = setting(
        True, "trace a request that was not sampled if it is answered an error",
        settings.boolean, "true, false",
    )  # fmt: skip

    @property
    def sampling(self) -> EdgeSampling:
        """What the settings say of traces."""
        return EdgeSampling(
            dict(self.trace_org_ratios),
            self.trace_spans_per_second,
            self.trace_slow_ms / 1000,
            self.trace_failed,
        )


@dataclass(frozen=True, kw_only=True)
class GatewayConfig(EdgeSettings):
    """All settings of `quafka gateway`."""

    mesh_peers: tuple[str, ...] = setting(
        (), "mesh address of the broker, where there is one", settings.addresses, "one host:port"
    )
    mesh_routes: tuple[Route, ...] = setting(
        (), "which broker has which topics, where there are several; the first rule that matches "
        "counts", routes.parse,
        "[org/]pattern=host:port, separated by commas; the last pattern is *, without an org",
    )  # fmt: skip
    mesh_allow: tuple[NodeId, ...] = setting(
        (),
        "node ids of the brokers, separated by commas",
        settings.node_ids,
        "node ids, 64 hex digits each",
    )
    mesh_allowed_file: Path | None = settings.mesh_allowed_file_setting()
    node_key: Path = setting(
        Path("./quafka-gateway/node.key"),
        "file of this node's key, made if missing",
        settings.path,
        "a path",
    )
    listen_shared: bool = setting(
        False, "whether further gateways on this host may have the same listen address",
        settings.boolean, "true, false",
    )  # fmt: skip
    mesh_datagram_size: int | None = settings.mesh_datagram_size_setting()
    mesh_batched: bool = settings.mesh_batched_setting()
    ops_listen: str = settings.ops_listen_setting("127.0.0.1:9093")
