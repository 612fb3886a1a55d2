"""`quafka doctor`: takes the steps of a Kafka client and reports the result of each.

A finding is ok, a warning or a failure; warnings and failures come with a fix. The checks run in a
client's order: name resolution, port, Kafka's protocol, the gateway and its brokers, metadata, the
advertised addresses, and, on request, one record written and read back. With `--store` it checks an
object store instead of a cluster (`doctor_store.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import socket

from quafka.commands.doctor_brokers import by_broker
from quafka.commands.doctor_compaction import check_compaction
from quafka.commands.doctor_groups import check_groups
from quafka.commands.doctor_security import check_certificate, check_security
from quafka.commands.doctor_store import check_store
from quafka.commands.findings import Report
from quafka.commands.options import bootstrap
from quafka.commands.output import as_json, colour, plain
from quafka.commands.run import EXIT_DONE, EXIT_FAILED, guarded, security
from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import ClientError, LoginError
from quafka_client.records import there_and_back
from quafka_client.security import NONE, ClientSecurity
from quafka_loop import clock
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
    GatewayServer,
)
from quafka_telemetry.version import version

_SKEW_WARNING = 1.0
_SKEW_FAILURE = 300.0
_OLD_SNAPSHOT = 2.0  # intervals
_OVERDUE_MS = 5_000  # the broker aborts a transaction within a second of its timeout
_ETHERNET = 1_452  # the largest datagram on plain Ethernet; larger ones are faster


def run(options: argparse.Namespace) -> int:
    """Run the checks and print the findings; the exit code is 1 if one has failed."""
    if options.store is not None:
        return guarded(lambda: _store(options))
    return guarded(lambda: asyncio.run(_run(options)))


def _store(options: argparse.Namespace) -> int:
    report = Report()
    check_store(report, options.store)
    return _end(report, options)


async def _run(options: argparse.Namespace) -> int:
    report = Report()
    addresses = bootstrap(options)
    secured = security(options)
    usable = [
        each for each in addresses if await _bootstrap(report, *each, options.timeout, secured)
    ]
    if usable and options.groups:
        await _groups(report, usable, options)
    if usable and options.write:
        await _round_trip(report, usable, options)
    return _end(report, options)


def _end(report: Report, options: argparse.Namespace) -> int:
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


# --- the steps of a client --------------------------------------------------------------------


async def _bootstrap(
    report: Report, host: str, port: int, timeout: float, security_: ClientSecurity = NONE
) -> bool:
    """Check a bootstrap address and the cluster there; return whether a client could use it."""
    connection = ClientConnection(host, port, timeout, security_)
    try:
        found = await _resolve(host, port)
        await connection.open()
    except ClientError as e:
        report.fail("connect", str(e))
        return False
    try:
        took = f"in {connection.connect_seconds * 1e3:.1f} ms"
        report.ok("connect", f"{connection.address} ({', '.join(found)}) {took}")
        check_certificate(report, connection)
        return await _server(report, connection)
    except ClientError as e:
        report.fail("kafka", str(e))
        return False
    finally:
        await connection.close()


async def _resolve(host: str, port: int) -> list[str]:
    """The addresses that a name resolves to."""
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as e:
        raise ClientError(
            f"the name {host!r} cannot be resolved; correct it, or add it to DNS or /etc/hosts"
        ) from e
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


async def _server(report: Report, connection: ClientConnection) -> bool:
    report.ok("kafka", f"{len(connection.versions)} APIs")
    if connection.has(DescribeGatewayRequest):
        await _gateway(report, connection)
    else:
        report.ok("version", "not a Quafka gateway; clocks and mesh are not checked")
    try:
        answer = await _metadata(connection)
    except ClientError as e:
        cause, _, fix = str(e).partition("; ")
        if not report.healthy:
            fix = "repair the mesh first (see above): topics are known only to brokers"
        report.fail("cluster", cause, fix)
        return False
    if not answer.cluster_id:
        report.fail(
            "cluster",
            "the gateway has no cluster id: it has never been connected to its broker",
            "start the broker, and check the mesh findings above",
        )
    else:
        report.ok("cluster", f"{answer.cluster_id}, {len(answer.brokers)} advertised")
        await check_compaction(report, connection, clock.time())
    if not answer.brokers:
        report.fail("advertised", "Metadata lists no brokers", "read the server's log")
    usable = bool(answer.brokers)
    for broker in answer.brokers:
        usable &= await _advertised(report, connection, broker, answer.cluster_id)
    return usable


async def _metadata(connection: ClientConnection) -> MetadataResponse:
    topics: list[MetadataRequestTopic] = []
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return await connection.call(request, MetadataResponse)


_ADVERTISE = "set advertised.listener of the gateway to an address that clients can reach"


async def _advertised(
    report: Report,
    bootstrap_: ClientConnection,
    broker: MetadataResponseBroker,
    cluster_id: str | None,
) -> bool:
    """Connect to an advertised address, as clients do."""
    address = join_address(broker.host, broker.port)
    connection = ClientConnection(broker.host, broker.port, bootstrap_.timeout, bootstrap_.security)
    try:
        found = await _resolve(broker.host, broker.port)
        await connection.open()
        answer = await _metadata(connection)
    except LoginError as e:
        what, _, fix = str(e).partition("; ")
        message = f"the advertised address {address} does not work: {what}"
        report.fail("advertised", message, f"{fix}, or {_ADVERTISE}")
        return False
    except ClientError as e:
        what = str(e).partition("; ")[0]
        report.fail(
            "advertised", f"the advertised address {address} does not work: {what}", _ADVERTISE
        )
        return False
    finally:
        await connection.close()
    if answer.cluster_id != cluster_id:
        report.fail(
            "advertised",
            f"the advertised address {address} leads to another cluster "
            f"({answer.cluster_id}, not {cluster_id})",
            _ADVERTISE,
        )
        return False
    if _all_loopback(found) and not _all_loopback(await _resolve(bootstrap_.host, 0)):
        report.warn(
            "advertised",
            f"the advertised address {address} is a loopback address: clients on other machines "
            "will connect to themselves",
            _ADVERTISE,
        )
        return True
    report.ok("advertised", f"{address} answers and belongs to the same cluster")
    if (address != bootstrap_.address) and connection.certificate_ends is not None:
        check_certificate(report, connection)
    return True


def _all_loopback(addresses: list[str]) -> bool:
    return all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in addresses)


# --- the gateway's own report -----------------------------------------------------------------


async def _gateway(report: Report, connection: ClientConnection) -> None:
    answer = await connection.call(DescribeGatewayRequest(), DescribeGatewayResponse)
    local = clock.time()
    mine = version()
    if answer.error_code:
        report.warn(
            "gateway",
            "this client may not read the state of the gateway and its brokers",
            "log in as a super user, or allow Describe on the cluster (`quafka acls add`)",
        )
        return
    if answer.version == mine:
        report.ok("version", f"the gateway and this command have version {mine}")
    else:
        report.warn(
            "version",
            f"the gateway has version {answer.version}, this command {mine}",
            "use one version for both",
        )
    # The gateway's time was taken during the request, so the round trip bounds its error.
    _clock(report, "gateway", answer.server_time_ms, local, connection.last_seconds)
    for broker in by_broker(answer.brokers):
        _broker(report, broker, answer)
    if answer.listeners:
        check_security(report, answer)


def _clock(report: Report, whose: str, time_ms: int, local: float, doubt: float) -> None:
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


def _broker(report: Report, broker: GatewayBroker, gateway: DescribeGatewayResponse) -> None:
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
    _clock(report, "broker", broker.time_ms, gateway.server_time_ms / 1000, doubt)


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


# --- groups -----------------------------------------------------------------------------------


async def _groups(
    report: Report, usable: list[tuple[str, int]], options: argparse.Namespace
) -> None:
    try:
        async with ClientCluster(usable, options.timeout, security(options)) as cluster:
            await check_groups(report, cluster)
    except ClientError as e:
        report.fail("groups", str(e))


# --- a record ---------------------------------------------------------------------------------


async def _round_trip(
    report: Report, usable: list[tuple[str, int]], options: argparse.Namespace
) -> None:
    try:
        async with ClientCluster(usable, options.timeout, security(options)) as cluster:
            write, read = await there_and_back(cluster, options.write)
    except ClientError as e:
        report.fail("write", str(e))
        return
    took = f"written in {write * 1e3:.1f} ms, read back in {read * 1e3:.1f} ms"
    report.ok("write", f"one record in {options.write!r}: {took}")
