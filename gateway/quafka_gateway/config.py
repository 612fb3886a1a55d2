"""The gateway's settings."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from quafka_gateway.cluster import routes
from quafka_gateway.cluster.routes import Route
from quafka_gateway.listener_settings import ListenerSettings
from quafka_gateway.sasl_settings import (
    MECHANISMS,
    SCRAM_256,
    SCRAM_512,
    parse_keys_url,
    parse_mechanisms,
    parse_word,
    parse_words,
)
from quafka_mesh_ops import settings
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.settings import setting, settings_class
from quafka_objects.address import parse_address
from quafka_objects.errors import StoreAddressError
from quafka_telemetry import sampling
from quafka_telemetry.sampling import EdgeSampling, OrgRatio

GATEWAY_OPERATIONS = "127.0.0.1:9093"
"""The default address of the operations pages."""
AUTHORIZER_NONE, AUTHORIZER_ACL = "none", "acl"


def _brokers(text: str) -> tuple[str, ...]:
    """Parse the URL of a store, or addresses of brokers."""
    if "://" not in text:
        return settings.addresses(text)
    try:
        parse_address(text)
    except StoreAddressError as e:
        raise ValueError(str(e)) from e
    return (text,)


class AddressLimit(NamedTuple):
    """The most connections that one IP address may have."""

    host: str
    most: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.most}" if ":" in self.host else f"{self.host}:{self.most}"


def parse_address_limits(text: str) -> tuple[AddressLimit, ...]:
    """Read "192.0.2.1:100,[2001:db8::1]:0".

    Raises:
        ValueError: a part is not an IP address with a number of 0 or more.
    """
    return tuple(_address_limit(part.strip()) for part in text.split(",") if part.strip())


def _address_limit(text: str) -> AddressLimit:
    host, _, most = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not most.isdecimal():
        raise ValueError(text)
    return AddressLimit(str(ip_address(bare)), int(most))


def _audit_log(text: str) -> str:
    """Check auto, off, stderr or a path."""
    return text if text in ("auto", "off", "stderr") else str(settings.path(text))


def parse_super_users(text: str) -> frozenset[str]:
    """Read Kafka's "User:alice;User:CN=bob,OU=x". Entries may have an org (`org_of.split_name`).

    Raises:
        ValueError: a part is not a kind and a name.
    """
    users = [part.strip() for part in text.split(";") if part.strip()]
    for user in users:
        kind, _, name = user.partition(":")
        if not kind or not name:
            raise ValueError(user)
    return frozenset(users)


def _super_users(text: str) -> str:
    """Check "User:alice;User:bob@acme"."""
    parse_super_users(text)
    return text


@settings_class
class EdgeSettings(ListenerSettings):
    """The settings that Kafka clients notice; DescribeConfigs lists them."""

    node_id: int = setting(
        0, "broker id that clients see; gateways with the same advertised address need the same id",
        settings.whole(0, (1 << 31) - 1), "0 to 2147483647",
    )  # fmt: skip
    workers: int = setting(
        1, "gateway processes that share the listen address; each process has its own limits of "
        "bytes and clients", settings.whole(1, 64), "1 to 64",
        brief="gateway processes that share the listen address",
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
        60_000, "longest pause while a client sends a request, in ms",
        settings.whole(1_000, 86_400_000), "1000 to 86400000",
    )  # fmt: skip
    socket_response_stall_ms: int = setting(
        600_000, "longest time for which a client may leave a response unread, in ms; a few "
        "seconds while queued.max.response.bytes are buffered", settings.whole(1_000, 86_400_000),
        "1000 to 86400000",
    )  # fmt: skip
    socket_min_bytes_per_second: int = setting(
        16_384, "slowest rate, in bytes per second, at which a client may send a request or read "
        "a response",
        settings.whole(1, 1 << 30), "1 to 1073741824",
    )  # fmt: skip
    max_partitions_per_request: int = setting(
        20_000,
        "most partitions that one CreateTopics or Metadata request may create; in CreateTopics a "
        "topic without a number of partitions counts as one",
        settings.whole(1, 10_000_000), "1 to 10000000",
    )  # fmt: skip
    queued_max_request_bytes: int = setting(
        512 << 20,
        "request bytes buffered for all clients together; above it only orgs within an equal share "
        "are read from",
        settings.whole(1 << 20, 1 << 40),
        "1048576 to 1099511627776",
    )
    queued_max_request_bytes_per_ip: int = setting(
        256 << 20,
        "request bytes buffered for the clients at one address; at least socket.request.max.bytes",
        settings.whole(1 << 20, 1 << 40),
        "1048576 to 1099511627776",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        1_000,
        "most fetch sessions at a time; 0 turns them off",
        settings.whole(0, 1_000_000),
        "0 to 1000000",
    )
    group_share_max_share_sessions: int = setting(
        10_000, "most share sessions of an org's clients at a time",
        settings.whole(1, 10_000_000), "1 to 10000000",
    )  # fmt: skip
    queued_max_response_bytes: int = setting(
        256 << 20,
        "response bytes buffered for all clients together; near it, fetches of orgs above an equal "
        "share return fewer bytes",
        settings.whole(1 << 20, 1 << 40),
        "1048576 to 1099511627776",
    )
    fetch_cache_bytes: int = setting(
        128 << 20, "bytes of record batches cached in memory for other consumers",
        settings.whole(0, 1 << 40), "0 to 1099511627776",
    )  # fmt: skip
    fetch_backfill_bytes: int = setting(
        4 << 20,
        "bytes per read from the broker for consumers that lag",
        settings.whole(1 << 20, 1 << 30),
        "1048576 to 1073741824",
    )
    max_connections: int = setting(
        4_096, "most client connections", settings.whole(1, 1_000_000), "1 to 1000000"
    )
    max_connections_per_ip: int = setting(
        2_048, "most client connections from one address", settings.whole(0, (1 << 31) - 1),
        "0 to 2147483647",
    )  # fmt: skip
    max_connections_per_ip_overrides: tuple[AddressLimit, ...] = setting(
        (), "max.connections.per.ip of single addresses", parse_address_limits,
        "address:number, separated by commas",
    )  # fmt: skip
    max_orgs: int = setting(
        1_000, "most orgs whose clients are connected at a time", settings.whole(1, 100_000),
        "1 to 100000",
    )  # fmt: skip
    metrics_orgs: int = setting(
        100, "most orgs with metrics of their own; all others are counted together",
        settings.whole(1, 100_000), "1 to 100000",
    )  # fmt: skip
    quota_window_num: int = setting(
        11, "samples over which the rate of a quota is measured", settings.whole(2, 1_000),
        "2 to 1000",
    )  # fmt: skip
    quota_window_size_seconds: int = setting(
        1, "length of each sample of a quota's rate, in seconds", settings.whole(1, 3_600),
        "1 to 3600",
    )  # fmt: skip
    quota_max_entities: int = setting(
        10_000, "most users, client ids and addresses of one org whose rates are measured "
        "separately; all further ones share the quota of one", settings.whole(1, 10_000_000),
        "1 to 10000000",
    )  # fmt: skip
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        (SCRAM_256, SCRAM_512), "SASL mechanisms of the listeners with SASL",
        parse_mechanisms, f"of {', '.join(MECHANISMS)}, separated by commas",
    )  # fmt: skip
    sasl_server_max_receive_size: int = setting(
        65_536, "largest request of a client that has not authenticated, in bytes",
        settings.whole(1_024, 524_288), "1024 to 524288",
    )  # fmt: skip
    connection_authentication_timeout_ms: int = setting(
        10_000, "longest time for which a client may take to authenticate, in ms",
        settings.whole(100, 600_000), "100 to 600000",
    )  # fmt: skip
    connection_failed_authentication_delay_ms: int = setting(
        100, "delay of the response to a failed authentication, in ms", settings.whole(0, 10_000),
        "0 to 10000",
    )  # fmt: skip
    connections_max_reauth_ms: int = setting(
        0, "longest time until a client must authenticate again (KIP-368), in ms; 0: only when its "
        "token expires", settings.whole(0, (1 << 31) - 1), "0 to 2147483647",
    )  # fmt: skip
    max_unauthenticated_connections: int = setting(
        512, "most connections that have not authenticated yet; above it the oldest is closed",
        settings.whole(1, 1_000_000), "1 to 1000000",
    )  # fmt: skip
    max_unauthenticated_connections_per_ip: int = setting(
        128, "max.unauthenticated.connections from one address", settings.whole(1, 1_000_000),
        "1 to 1000000",
    )  # fmt: skip
    max_failed_authentications_per_ip: int = setting(
        300, "most failed authentications per minute from one address; above it its new "
        "connections are refused; 0: no limit", settings.whole(0, 1_000_000), "0 to 1000000",
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "", "public keys of the issuer of tokens, in RFC 7517's form", parse_keys_url,
        "file:///path or https://…",
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, "interval between reads of these keys, in ms",
        settings.whole(1_000, (1 << 31) - 1), "1000 to 2147483647",
    )  # fmt: skip
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        (),
        "accepted audiences; a token must name one of them",
        parse_words,
        "texts, separated by commas",
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "", "issuer that a token must name; default: any", str, "a text"
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30, "accepted difference from the issuer's clock, in seconds", settings.whole(0, 3_600),
        "0 to 3600",
    )  # fmt: skip
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sub", "claim of a token with the client's name", parse_word, "a text"
    )
    sasl_oauthbearer_org_claim_name: str = setting(
        "", "claim of a token with the name of the client's org; default: none, clients belong to "
        "the listener's org, or org.id", str, "a text",
    )  # fmt: skip
    connections_max_idle_ms: int = setting(
        600_000, "a connection without a request for this long is closed, in ms",
        settings.whole(1_000, (1 << 31) - 1), "1000 to 2147483647",
    )  # fmt: skip
    authorizer: str = setting(
        "", "acl: the rules (ACLs) decide what clients may do; none: every client may do "
        "everything; default: acl if any listener authenticates clients",
        settings.choice("", AUTHORIZER_NONE, AUTHORIZER_ACL), "none, acl",
    )  # fmt: skip
    super_users: str = setting(
        "", "principals of this gateway's org that no rule restricts, separated by semicolons; of "
        "another org: User:name@org, with its name or id", _super_users,
        "such as User:alice;User:bob@acme",
        brief="principals that no ACL restricts, such as User:alice",
    )  # fmt: skip
    allow_everyone_if_no_acl_found: bool = setting(
        False, "whether every client may do everything with a resource that has no rules",
        settings.boolean, "true, false",
    )  # fmt: skip
    trace_org_ratios: tuple[OrgRatio, ...] = setting(
        (),
        "share of an org's requests that is traced; other orgs: OTEL_TRACES_SAMPLER_ARG",
        sampling.parse_org_ratios,
        "org=ratio, separated by commas; ratios from 0.0 to 1.0",
    )
    trace_spans_per_second: int = setting(
        1_000, "most spans per second that a gateway process starts; above it requests are not "
        "traced; 0: no limit", settings.whole(0, 1_000_000), "0 to 1000000",
    )  # fmt: skip
    trace_slow_ms: int = setting(
        500, "a request that was not sampled is traced after all if it takes this long, without "
        "the time parked; 0: never", settings.whole(0, 3_600_000),
        "0 to 3600000",
    )  # fmt: skip
    trace_failed: bool = setting(
        True, "trace a request that was not sampled if its response has an error",
        settings.boolean, "true, false",
    )  # fmt: skip

    audit_log: str = setting(
        "auto", "destination of the audit log; auto: stderr if any listener authenticates "
        "clients", _audit_log, "auto, off, stderr, or the path of a file",
    )  # fmt: skip

    @property
    def sampling(self) -> EdgeSampling:
        """The settings about traces."""
        return EdgeSampling(
            dict(self.trace_org_ratios),
            self.trace_spans_per_second,
            self.trace_slow_ms / 1000,
            self.trace_failed,
        )


@settings_class
class GatewayConfig(EdgeSettings):
    """All settings of `quafka gateway`."""

    mesh_peers: tuple[str, ...] = setting(
        (), "mesh address of the only broker", settings.addresses, "one host:port",
        brief="mesh address of the broker",
    )  # fmt: skip
    mesh_routes: tuple[Route, ...] = setting(
        (), "for several brokers: which broker has which topics; the first rule that matches "
        "decides", routes.parse,
        "[org/]pattern=host:port, separated by commas; the last pattern is *, without an org; with "
        "brokers: [org/]pattern=shard:number, or [org/]group:… and [org/]transaction:…",
    )  # fmt: skip
    brokers: tuple[str, ...] = setting(
        (), "instead of mesh.peers, for a cluster of shards: the URL of its object store, or the "
        "mesh address of one or more brokers; the gateway finds the others, and follows shards "
        "that move", _brokers, "s3://…, gs://…, az://… or file:///…; or host:port",
        brief="object store or brokers of a cluster of shards, instead of mesh.peers",
    )  # fmt: skip
    mesh_allow: tuple[NodeId, ...] = setting(
        (),
        "node ids of the brokers, separated by commas",
        settings.node_ids,
        "node ids, 64 hex digits each",
        brief="node ids of the brokers",
    )
    mesh_allowed_file: Path | None = settings.mesh_allowed_file_setting()
    node_key: Path = setting(
        Path("./quafka-gateway/node.key"),
        "file of this node's key; created if missing",
        settings.path,
        "a path",
        brief="file of this node's key",
    )
    listen_shared: bool = setting(
        False, "whether other gateways on this host may use the same listen address",
        settings.boolean, "true, false",
    )  # fmt: skip
    mesh_datagram_size: int | None = settings.mesh_datagram_size_setting()
    mesh_batched: bool = settings.mesh_batched_setting()
    mesh_records: str = settings.mesh_records_setting()
    mesh_bulk: str = settings.mesh_bulk_setting()
    ops_listen: str = settings.ops_listen_setting(GATEWAY_OPERATIONS)
    ops_port_fallback: bool = settings.ops_port_fallback_setting()
