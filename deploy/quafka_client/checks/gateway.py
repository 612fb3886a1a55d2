"""Checks of a gateway's own report: versions, clocks, its brokers and their shards."""

from __future__ import annotations

from quafka_client.checks.brokers import by_broker
from quafka_client.checks.findings import Report
from quafka_client.checks.security import check_security
from quafka_client.connection import ClientConnection
from quafka_loop import clock
from quafka_proto.schema.quafka import (
    DescribeGatewayRequest,
    DescribeGatewayResponse,
    GatewayBroker,
    GatewayServer,
)
from quafka_telemetry.version import version

_SKEW_WARNING = 1.0
_SKEW_FAILURE = 300.0
_OLD_SNAPSHOT = 2.0  # intervals
_OVERDUE_MS = 5_000  # the broker aborts a transaction within a second of its timeout
_ETHERNET = 1_452  # the largest datagram on plain Ethernet; larger ones are faster


async def check_gateway(
    report: Report, connection: ClientConnection, program: str = "command"
) -> bool:
    """Check a gateway and its brokers; return whether the client may read their state.

    `program`: what the caller is, whose version and clock are compared. Raises ClientError.
    """
    answer = await connection.call(DescribeGatewayRequest(), DescribeGatewayResponse)
    local = clock.time()
    mine = version()
    if answer.error_code:
        return False
    if answer.version == mine:
        report.ok("version", f"the gateway and this {program} have version {mine}")
    else:
        report.warn(
            "version",
            f"the gateway has version {answer.version}, this {program} {mine}",
            "use one version for both",
        )
    # The gateway's time was taken during the request, so the round trip bounds its error.
    check_clock(report, "gateway", answer.server_time_ms, local, connection.last_seconds)
    for broker in by_broker(answer.brokers):
        check_broker(report, broker, answer)
    if answer.listeners:
        check_security(report, answer)
    return True


def check_clock(report: Report, whose: str, time_ms: int, local: float, doubt: float) -> None:
    """Compare a clock with the local one; `doubt`: the error of the comparison in seconds."""
    skew = time_ms / 1000 - local
    if abs(skew) <= max(_SKEW_WARNING, doubt):
        within = max(abs(skew), doubt) * 1e3
        report.ok("clock", f"the {whose}'s clock differs by at most {within:.0f} ms")
        return
    message = f"the {whose}'s clock is {abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"
    fix = "synchronise the clocks of both machines (chrony, systemd-timesyncd)"
    if abs(skew) > _SKEW_FAILURE:
        report.fail("clock", f"{message}: timestamps, retention and lag in seconds are wrong", fix)
    else:
        report.warn("clock", message, fix)


def _disconnected(report: Report, broker: GatewayBroker) -> None:
    if broker.problem:
        report.fail(
            "mesh",
            f"the broker at {broker.address} refuses connections of the gateway: {broker.problem}",
            "raise that setting of the broker, or run fewer gateway processes",
        )
        return
    report.fail(
        "mesh",
        f"the gateway has had no connection to the broker at {broker.address} "
        f"for {broker.away_ms / 1000:.0f} s",
        "start the broker; check that UDP passes, that mesh.peers is the broker's address, "
        "and that each has the other's node id in mesh.allow",
    )


def check_broker(report: Report, broker: GatewayBroker, gateway: DescribeGatewayResponse) -> None:
    """Check one broker of a gateway's report."""
    if not broker.connected:
        _disconnected(report, broker)
        return
    if not broker.answered:
        report.fail(
            "mesh",
            f"the broker at {broker.address} is connected but does not answer",
            "read the broker's log; it may hang, or have an older version",
        )
        return
    path = (
        f"broker {broker.address}: round trip {broker.rtt_us / 1e3:.1f} ms, "
        f"op {broker.op_us / 1e3:.1f} ms, datagrams of {broker.datagram_bytes} bytes"
    )
    if broker.packets_sent:  # only clients of the gateway's own org get the number
        path += f", {broker.packets_lost} of {broker.packets_sent} packets lost"
    report.ok("mesh", path)
    if 0 <= broker.datagram_bytes < _ETHERNET:
        report.warn(
            "mesh",
            f"the path to {broker.address} carries only small datagrams, which cost more CPU",
            "find the VPN or tunnel that limits them, or set mesh.datagram.size on both sides",
        )
    if broker.problem:
        report.fail("broker", f"{broker.address}: {broker.problem}", "read the broker's log")
    if broker.version != gateway.version:
        report.warn(
            "version",
            f"the broker at {broker.address} has version {broker.version}, "
            f"the gateway {gateway.version}",
            "use one version for both",
        )
    if broker.snapshot_interval_ms:
        _snapshots(report, broker)
    if broker.open_transactions or broker.unfinished_transactions:
        _transactions(report, broker)
    for server in broker.servers:
        (_kafka_folders if server.kind == "kafka" else _redis)(report, broker, server)
    doubt = max(broker.op_us, 0) / 1e6
    check_clock(report, "broker", broker.time_ms, gateway.server_time_ms / 1000, doubt)


def _snapshots(report: Report, broker: GatewayBroker) -> None:
    age, interval = broker.snapshot_age_ms / 1000, broker.snapshot_interval_ms / 1000
    message = (
        f"the last snapshot of {broker.address} is {age:.0f} s old, the interval {interval:.0f} s"
    )
    if broker.snapshot_problem:
        fix = "read the broker's log; the broker retries automatically"
        report.warn("snapshots", f"{message}; {broker.snapshot_problem}", fix)
    elif age > _OLD_SNAPSHOT * interval:
        report.warn("snapshots", message, "read the broker's log, and check snapshot.dest")
    else:
        report.ok("snapshots", message)


def _transactions(report: Report, broker: GatewayBroker) -> None:
    age, overdue = broker.oldest_transaction_ms / 1000, broker.overdue_transaction_ms
    message = (
        f"{broker.open_transactions} open transactions at {broker.address}, the oldest for "
        f"{age:.0f} s"
    )
    unfinished_ms = broker.unfinished_transaction_ms
    if unfinished_ms > _OVERDUE_MS:
        report.warn(
            "transactions",
            f"{message}; {broker.unfinished_transactions} that have ended here are still open at "
            f"another broker after {unfinished_ms / 1000:.0f} s, and consumers with "
            "read_committed wait there",
            "start that broker, or see mesh.brokers; this broker's log names it",
        )
    elif overdue > _OVERDUE_MS:
        report.warn(
            "transactions",
            f"{message}; one has passed its timeout by {overdue / 1000:.0f} s, and consumers with "
            "read_committed wait for it",
            "find it with `quafka transactions list`, end it with `quafka transactions abort`",
        )
    else:
        report.ok("transactions", message)


def _redis(report: Report, broker: GatewayBroker, server: GatewayServer) -> None:
    plural = "" if server.topics == 1 else "s"
    topics = f"{server.topics} topic{plural} at {broker.address}"
    if server.problem:
        report.warn(
            "redis",
            f"{server.name}, with {topics}: {server.problem}",
            "start or repair this Redis; the broker retries automatically; other topics work",
        )
    elif server.detail.endswith("slave"):
        report.warn(
            "redis",
            f"{server.name}, with {topics}, is a replica ({server.detail}) and refuses records",
            "name the master's address in quafka.source, too, or promote this one (REPLICAOF)",
        )
    else:
        report.ok("redis", f"{server.name}: {server.detail or 'answers'}; {topics}")


def _kafka_folders(report: Report, broker: GatewayBroker, folders: GatewayServer) -> None:
    message = (
        f"{folders.name}, with {folders.topics} topics at {broker.address}: "
        f"{folders.problem or folders.detail}"
    )
    if folders.problem:
        fix = "check that the broker may read the folders; other topics work"
        report.warn("kafka folders", message, fix)
    else:
        report.ok("kafka folders", message)
