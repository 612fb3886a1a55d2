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

from quafka.commands.doctor_store import check_store
from quafka.commands.options import bootstrap
from quafka.commands.output import as_json, colour, plain
from quafka.commands.run import EXIT_DONE, EXIT_FAILED, guarded, security
from quafka_client.checks.compaction import check_compaction
from quafka_client.checks.findings import Report
from quafka_client.checks.gateway import check_gateway
from quafka_client.checks.groups import check_groups
from quafka_client.checks.security import check_certificate
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
from quafka_proto.schema.quafka import DescribeGatewayRequest


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
        if not await check_gateway(report, connection):
            report.warn(
                "gateway",
                "this client may not read the state of the gateway and its brokers",
                "log in as a super user, or allow Describe on the cluster (`quafka acls add`)",
            )
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
