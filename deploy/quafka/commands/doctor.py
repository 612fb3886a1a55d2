"""`quafka doctor`: connects as a client does, and says what such a client will see.

Each finding is fine, a warning or a failure; what is not fine says what to mend. Findings follow
the way of a client: the name, the port, Kafka, what the cluster says of itself, the addresses that
it tells, the brokers behind, a record there and back.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import socket
import time
from dataclasses import dataclass, field
from typing import Literal

from quafka.client.cluster import Cluster
from quafka.client.connection import Connection
from quafka.client.errors import ClientError
from quafka.client.records import there_and_back
from quafka.commands.options import bootstrap
from quafka.commands.output import as_json, colour, plain
from quafka.commands.run import EXIT_DONE, EXIT_FAILED, guarded
from quafka_mesh_ops.settings import join_address
from quafka_proto.schema.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from quafka_proto.schema.quafka import (
    DescribeGatewayRequest,
    DescribeGatewayResponse,
    GatewayBroker,
)
from quafka_telemetry.version import version

_SKEW_WARNING = 1.0
_SKEW_FAILURE = 300.0
_OLD_SNAPSHOT = 2.0  # intervals
_ETHERNET = 1_452  # a datagram that fits everywhere; more is faster

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and how to mend it."""

    check: str
    status: Status
    message: str
    fix: str | None = None


@dataclass(slots=True)
class Report:
    """The findings so far."""

    findings: list[Finding] = field(default_factory=list[Finding])

    def ok(self, check: str, message: str) -> None:
        """All is well with this."""
        self.findings.append(Finding(check, "ok", message))

    def warn(self, check: str, message: str, fix: str) -> None:
        """It works, but is not as it should be."""
        self.findings.append(Finding(check, "warn", message, fix))

    def fail(self, check: str, message: str, fix: str | None = None) -> None:
        """It does not work. A message of ClientError has its fix in it."""
        if fix is None:
            message, _, fix = message.partition("; ")
        self.findings.append(Finding(check, "fail", message, fix or None))

    @property
    def healthy(self) -> bool:
        """Whether nothing has failed."""
        return all(each.status != "fail" for each in self.findings)


def run(options: argparse.Namespace) -> int:
    """Look, and say; exit code 1 where something does not work."""
    return guarded(lambda: asyncio.run(_run(options)))


async def _run(options: argparse.Namespace) -> int:
    report = Report()
    addresses = bootstrap(options)
    usable = [each for each in addresses if await _bootstrap(report, *each, options.timeout)]
    if usable and options.write:
        await _round_trip(report, usable, options)
    if options.format == "json":
        print(as_json({"healthy": report.healthy, "findings": report.findings}))
    else:
        _print(report)
    return EXIT_DONE if report.healthy else EXIT_FAILED


def _print(report: Report) -> None:
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    widest = max(len(each.check) for each in report.findings)
    for each in report.findings:
        mark = colour(f"{each.status:4}", colours[each.status])
        print(f"{mark}  {each.check:{widest}}  {plain(each.message)}")
        if each.fix:
            print(f"      {'':{widest}}  {colour('fix:', 'bold')} {plain(each.fix)}")


# --- the way of a client ----------------------------------------------------------------------


async def _bootstrap(report: Report, host: str, port: int, timeout: float) -> bool:
    """Look at a bootstrap address and what it leads to; whether a client could go on from it."""
    connection = Connection(host, port, timeout)
    try:
        found = await _resolve(host, port)
        await connection.open()
    except ClientError as e:
        report.fail("connect", str(e))
        return False
    try:
        took = f"in {connection.connect_seconds * 1e3:.1f} ms"
        report.ok("connect", f"{connection.address} ({', '.join(found)}) {took}")
        return await _server(report, connection)
    except ClientError as e:
        report.fail("kafka", str(e))
        return False
    finally:
        await connection.close()


async def _resolve(host: str, port: int) -> list[str]:
    """The addresses behind a name."""
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as e:
        raise ClientError(
            f"the name {host!r} cannot be resolved; correct it, or add it to DNS or /etc/hosts"
        ) from e
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


async def _server(report: Report, connection: Connection) -> bool:
    report.ok("kafka", f"{len(connection.versions)} APIs")
    if connection.has(DescribeGatewayRequest):
        await _gateway(report, connection)
    else:
        report.ok("version", "not a Quafka gateway; clocks and mesh are not looked at")
    try:
        answer = await _metadata(connection)
    except ClientError as e:
        cause, _, fix = str(e).partition("; ")
        if not report.healthy:
            fix = "mend the mesh, above: only a broker knows topics"
        report.fail("cluster", cause, fix)
        return False
    if not answer.cluster_id:
        report.fail(
            "cluster",
            "the server knows no cluster id: it has not met its broker yet",
            "start the broker, and see the mesh above",
        )
    else:
        report.ok("cluster", f"{answer.cluster_id}, {len(answer.brokers)} advertised")
    if not answer.brokers:
        report.fail("advertised", "the cluster names no brokers", "see the server's log")
    usable = bool(answer.brokers)
    for broker in answer.brokers:
        usable &= await _advertised(report, connection, broker, answer.cluster_id)
    return usable


async def _metadata(connection: Connection) -> MetadataResponse:
    topics: list[MetadataRequestTopic] = []
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return await connection.call(request, MetadataResponse)


_ADVERTISE = "set advertised.listener of the gateway to an address that clients can reach"


async def _advertised(
    report: Report,
    bootstrap_: Connection,
    broker: MetadataResponseBroker,
    cluster_id: str | None,
) -> bool:
    """Go to an address that clients are told, as they will."""
    address = join_address(broker.host, broker.port)
    connection = Connection(broker.host, broker.port, bootstrap_.timeout)
    try:
        found = await _resolve(broker.host, broker.port)
        await connection.open()
        answer = await _metadata(connection)
    except ClientError as e:
        what = str(e).partition("; ")[0]
        report.fail(
            "advertised", f"clients are told to go to {address}, in vain: {what}", _ADVERTISE
        )
        return False
    finally:
        await connection.close()
    if answer.cluster_id != cluster_id:
        report.fail(
            "advertised",
            f"clients are told to go to {address}, where another cluster is "
            f"({answer.cluster_id}, not {cluster_id})",
            _ADVERTISE,
        )
        return False
    if _all_loopback(found) and not _all_loopback(await _resolve(bootstrap_.host, 0)):
        report.warn(
            "advertised",
            f"clients are told to go to {address}, which on any other machine is that machine",
            _ADVERTISE,
        )
        return True
    report.ok("advertised", f"{address} answers, as the same cluster")
    return True


def _all_loopback(addresses: list[str]) -> bool:
    return all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in addresses)


# --- what a gateway says of itself ------------------------------------------------------------


async def _gateway(report: Report, connection: Connection) -> None:
    answer = await connection.call(DescribeGatewayRequest(), DescribeGatewayResponse)
    local = time.time()
    mine = version()
    if answer.version == mine:
        report.ok("version", f"gateway and this command are {mine}")
    else:
        report.warn(
            "version",
            f"the gateway is {answer.version}, this command {mine}",
            "use the same version of both",
        )
    # The answer is as old as half of its way, or, where brokers were asked, less than all of it.
    _clock(report, "gateway", answer.server_time_ms, local, connection.last_seconds)
    for broker in answer.brokers:
        _broker(report, broker, answer)


def _clock(report: Report, whose: str, time_ms: int, local: float, doubt: float) -> None:
    skew = time_ms / 1000 - local
    if abs(skew) <= max(_SKEW_WARNING, doubt):
        report.ok("clock", f"the {whose}'s is within {max(abs(skew), doubt) * 1e3:.0f} ms")
        return
    message = f"the {whose}'s is {abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"
    fix = "synchronise the clocks of both machines (chrony, systemd-timesyncd)"
    if abs(skew) > _SKEW_FAILURE:
        report.fail("clock", f"{message}: times, retention and lag in seconds are wrong", fix)
    else:
        report.warn("clock", message, fix)


def _broker(report: Report, broker: GatewayBroker, gateway: DescribeGatewayResponse) -> None:
    if not broker.connected:
        report.fail(
            "mesh",
            f"the gateway does not reach the broker at {broker.address} "
            f"(for {broker.away_ms / 1000:.0f} s)",
            "start the broker; see that UDP passes, mesh.peers is its address, and each has the "
            "other's node id in mesh.allow",
        )
        return
    if not broker.answered:
        report.fail(
            "mesh",
            f"the broker at {broker.address} is connected, but does not answer",
            "see its log; it may hang, or be of an older version",
        )
        return
    report.ok(
        "mesh",
        f"broker {broker.address}: round trip {broker.rtt_us / 1e3:.1f} ms, "
        f"an op {broker.op_us / 1e3:.1f} ms, datagrams of {broker.datagram_bytes} bytes, "
        f"{broker.packets_lost} of {broker.packets_sent} packets lost",
    )
    if 0 <= broker.datagram_bytes < _ETHERNET:
        report.warn(
            "mesh",
            f"the path to {broker.address} takes only small datagrams",
            "see what narrows it (a VPN, a tunnel), or set mesh.datagram.size on both sides",
        )
    if broker.problem:
        report.fail("broker", f"{broker.address}: {broker.problem}", "see the broker's log")
    if broker.version != gateway.version:
        report.warn(
            "version",
            f"the broker at {broker.address} is {broker.version}, the gateway {gateway.version}",
            "use the same version of both",
        )
    if broker.snapshot_interval_ms:
        _snapshots(report, broker)
    doubt = max(broker.op_us, 0) / 1e6
    _clock(report, "broker", broker.time_ms, gateway.server_time_ms / 1000, doubt)


def _snapshots(report: Report, broker: GatewayBroker) -> None:
    age, interval = broker.snapshot_age_ms / 1000, broker.snapshot_interval_ms / 1000
    message = f"the last of {broker.address} is {age:.0f} s old, one is made every {interval:.0f} s"
    if broker.snapshot_problem:
        fix = "see the broker's log; it tries again by itself"
        report.warn("snapshots", f"{message}; {broker.snapshot_problem}", fix)
    elif age > _OLD_SNAPSHOT * interval:
        report.warn("snapshots", message, "see the broker's log, and snapshot.dest")
    else:
        report.ok("snapshots", message)


# --- a record ---------------------------------------------------------------------------------


async def _round_trip(
    report: Report, usable: list[tuple[str, int]], options: argparse.Namespace
) -> None:
    try:
        async with Cluster(usable, options.timeout) as cluster:
            write, read = await there_and_back(cluster, options.write)
    except ClientError as e:
        report.fail("write", str(e))
        return
    took = f"written in {write * 1e3:.1f} ms, read in {read * 1e3:.1f} ms"
    report.ok("write", f"a record in {options.write!r}: {took}")
