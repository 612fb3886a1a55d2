"""Redis servers that ask for a password, use TLS, are replicas, hang or are away."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from quafka_broker.ops import probe
from quafka_broker.state import BrokerState
from quafka_loop import clock
from quafka_mesh_ops.ops.probe import Probe
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.quafka import GatewayServer
from tests.support.ports import lasting_port
from tests.support.redis_server import RedisServer, load
from tests.unit.broker.redis.tools import create, get, put, read_all, state_with
from tests.unit.broker.tools import context

pytestmark = pytest.mark.needs("redis-server")


async def probed(state: BrokerState) -> GatewayServer:
    servers = (await probe.handle(state, context(), Probe())).servers
    assert servers is not None
    (server,) = servers
    return server


async def ours_still_works(state: BrokerState) -> None:
    """A topic of the log takes and serves records, and nothing blocks the loop."""
    began = clock.thread_time()
    answer = await put(state, b"x", name="ours")
    assert answer.error_code == 0
    assert (await get(state, answer.base_offset, name="ours")).records
    assert clock.thread_time() - began < 0.5


@asynccontextmanager
async def with_topics(
    address: str, source: str, secrets: Path | None = None, ca_file: Path | None = None
) -> AsyncGenerator[BrokerState]:
    async with state_with(address, secrets=secrets, ca_file=ca_file) as state:
        assert (await create(state, source)).error_code == 0
        assert (await create(state, "", "ours")).error_code == 0
        yield state


async def test_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "right").write_text("default:hunter2\n")
    (tmp_path / "wrong").write_text("hunter3")
    monkeypatch.setenv("QUAFKA_REDIS_A", "hunter2")
    with RedisServer(tmp_path / "redis", "--requirepass", "hunter2") as server:
        for option, problem in (
            ("auth=file:right", ""),
            ("auth=env:QUAFKA_REDIS_A", ""),
            ("auth=file:wrong", "refuses the user or the password"),
            ("auth=file:missing", "the secret 'missing' cannot be read"),
            ("", "password"),
        ):
            source = server.source("s", option) if option else server.source("s")
            async with with_topics(server.address, source, tmp_path) as state:
                answer = await put(state, b"a")
                assert bool(answer.error_code) is bool(problem), option
                found = await probed(state)
                assert problem in found.problem
                assert "hunter" not in f"{found} {answer.error_message}"
                await ours_still_works(state)
    assert "hunter" not in caplog.text


def make_certificate(key_file: Path, certificate_file: Path) -> None:
    """A self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = clock.utc_now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    certificate_file.write_bytes(certificate.public_bytes(pem))


async def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make_certificate(key, certificate)
    port = lasting_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "no", "--tls-cert-file"]
    options += [str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file"]
    with RedisServer(tmp_path / "redis", *options, str(certificate)) as server:
        address = f"127.0.0.1:{port}"
        source = f"rediss://{address}/0?stream=s"
        async with with_topics(address, source, None, certificate) as state:
            assert (await put(state, b"a")).error_code == 0
            assert [record.value for record in await read_all(state)] == [b"a"]
        async with with_topics(address, source) as state:  # not signed by a known authority
            assert (await put(state, b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await ours_still_works(state)
        with server.client() as client:
            assert client.xlen("s") == 1


async def test_a_replica_is_read_and_takes_no_records(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path / "one") as master,
        RedisServer(tmp_path / "two", "--replicaof", "127.0.0.1", str(master.port)) as replica,
    ):
        with master.client() as client:
            load(client, "s", [b"a"])
            until = clock.monotonic() + 30
            while not client.wait(1, 100):
                assert clock.monotonic() < until
        async with with_topics(replica.address, replica.source("s")) as state:
            refused = await put(state, b"x")
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "read-only" in refused.error_message
            assert [record.value for record in await read_all(state)] == [b"a"]
            assert (await probed(state)).detail.endswith("slave")
            await ours_still_works(state)


async def test_a_silent_server_costs_its_own_topics_only(tmp_path: Path) -> None:
    """It accepts connections and never answers."""
    held: list[asyncio.StreamWriter] = []

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    address = f"{host}:{port}"
    async with with_topics(address, f"redis://{address}/0?stream=s") as state:
        waiting = [asyncio.create_task(put(state, b"x")) for _ in range(3)]
        began = clock.perf_counter()
        assert (await get(state, 0, 300)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert 0.2 < clock.perf_counter() - began < 10
        await ours_still_works(state)
        assert (await probed(state)).problem
        for task in waiting:
            assert not task.done()
    ended = {(await asyncio.wait_for(task, 30)).error_code for task in waiting}
    assert ended <= {
        ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }  # fmt: skip
    for writer in held:
        writer.close()
    silent.close()


async def test_a_server_that_is_away_comes_back(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis", "--appendonly", "yes") as server:
        async with with_topics(server.address, server.source("s")) as state:
            first = await put(state, b"a", producer=(7, 0, 0))
            server.kill()
            refused = [await put(state, b"b", producer=(7, 0, 1)) for _ in range(3)]
            assert {each.error_code for each in refused} <= {
                ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            }  # fmt: skip
            waiting = asyncio.create_task(get(state, first.base_offset + 1, 20_000))
            await ours_still_works(state)
            assert "cannot be reached" in (await probed(state)).problem
            await asyncio.sleep(0.5)
            assert not waiting.done()
            assert state.redis.servers[0][1].figures.failures < 20  # attempts pause
            server.start()
            until = clock.monotonic() + 30
            while (await put(state, b"b", producer=(7, 0, 1))).error_code:
                assert clock.monotonic() < until
                await asyncio.sleep(0.05)
            assert (await asyncio.wait_for(waiting, 10)).records
            assert [record.value for record in await read_all(state)] == [b"a", b"b"]


async def test_scripts_that_redis_has_forgotten_are_loaded_again(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as server, server.client() as client:
        async with with_topics(server.address, server.source("s")) as state:
            for n in range(3):
                client.script_flush()
                assert (await put(state, b"%d" % n)).error_code == 0
                client.script_flush()
                assert len(await read_all(state)) == n + 1
