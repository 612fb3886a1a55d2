"""Listeners with TLS: versions, certificates of both sides, their exchange, and bad handshakes."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from cryptography.x509.oid import NameOID
from kafka import KafkaConsumer, KafkaProducer

from quafka_gateway.edge.tls.contexts import TlsContext
from quafka_gateway.listeners import KafkaListener, SecurityProtocol, TlsSettings
from quafka_telemetry.startup import StartupError
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, fetch, metadata, produce, values
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient
from tests.support.sasl_users import alter_users, log_in_plain, upsertion

LISTENERS = ",".join(
    f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "MUTUAL", "ASKING", "LOGIN", "BOTH")
)
RULES = r"RULE:^O=Acme\\, Inc\.,CN=([^,]*)$/$1/L,DEFAULT"
TIMEOUT = 1.0
HOST = "127.0.0.1"


@dataclass
class Site:
    """A cluster with TLS listeners and the authority of all certificates."""

    cluster: Cluster
    ca: Authority
    folder: Path

    def connect(self, listener: str, tls: ssl.SSLContext | None = None) -> RawClient:
        return RawClient(self.cluster.address_of(listener), tls=tls or self.trusting())

    def trusting(self, certificate: Path | None = None) -> ssl.SSLContext:
        """A client that trusts the authority; with `certificate`, one that presents it."""
        context = ssl.create_default_context(cafile=self.ca.file)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def raw(self, listener: str = "SSL") -> socket.socket:
        return socket.create_connection(self.cluster.address_of(listener), 10)

    @property
    def log(self) -> str:
        return (self.cluster.folder / "gateway.log").read_text()

    def wait_for(self, true: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 15
        while not true():
            assert time.monotonic() < give_up
            time.sleep(0.05)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("tls")
    ca = Authority(folder)
    server = ca.issue("server", (HOST,))
    args = (
        *("--listener-security-protocol-map", "MUTUAL:SSL,ASKING:SSL,LOGIN:SASL_SSL,BOTH:SASL_SSL"),
        *("--ssl-certfile", str(server), "--ssl-ca-file", str(ca.file)),
        *("--ssl-client-auth", "none,MUTUAL:required,ASKING:requested,BOTH:required"),
        *("--ssl-principal-mapping-rules", RULES),
        *("--connection-authentication-timeout-ms", str(int(TIMEOUT * 1000))),
        *("--sasl-enabled-mechanisms", "PLAIN,SCRAM-SHA-256"),
        *("--audit-log", "stderr", "--authorizer", "none"),
    )
    with Cluster(folder, gateway_args=args, listeners=LISTENERS) as cluster:
        yield Site(cluster, ca, folder)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_produce_and_fetch_over_tls(site: Site, version: ssl.TLSVersion) -> None:
    tls = site.trusting()
    tls.minimum_version = tls.maximum_version = version
    topic = f"t-{version.name}"
    sizes = (1, 16_000, 70_000, 900_000)
    with site.connect("SSL", tls) as client, site.connect("SSL", tls) as reader:
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() == version.name.replace("_", ".")
        (broker,) = metadata(client, topic).brokers
        assert (broker.host, broker.port) == site.cluster.address_of("SSL")
        for size in sizes:
            produce(client, topic, bytes([size % 251]) * size)
        data = fetch(reader, topic, 0, max_bytes=4 << 20)
        again = fetch(client, topic, 0, max_bytes=4 << 20)
    expected = [bytes([size % 251]) * size for size in sizes]
    assert values(data) == expected
    assert values(again) == expected


@pytest.mark.local_log
def test_records_in_files_are_encrypted_on_their_way(site: Site) -> None:
    """A gateway on the broker's host reads large batches from the log's files; with TLS it cannot
    have the kernel send them."""
    sent = [bytes([number]) * 100_000 for number in range(40)]

    def by_place() -> float:
        figures = Scrape(site.cluster.gateway.ready["operations"])
        return figures("quafka_gateway_fetched_bytes_total", by="place")

    with site.connect("SSL") as client:
        create_topic(client, "large")
        for value in sent:
            produce(client, "large", value)
        before = by_place()
        found: list[bytes] = []
        while len(found) < len(sent):
            found += values(fetch(client, "large", len(found), max_bytes=2 << 20))
        assert found == sent
        assert by_place() > before


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_older_versions_are_refused(site: Site, version: ssl.TLSVersion) -> None:
    tls = site.trusting()
    tls.set_ciphers("ALL:@SECLEVEL=0")
    tls.minimum_version = tls.maximum_version = version
    with pytest.raises(ssl.SSLError, match="alert protocol version"):
        site.connect("SSL", tls)


def test_weak_ciphers_are_refused(site: Site) -> None:
    tls = site.trusting()
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    tls.set_ciphers("AES128-SHA:ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        site.connect("SSL", tls)


def test_a_client_that_trusts_another_authority_does_not_connect(site: Site) -> None:
    other = Authority(site.folder / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        site.connect("SSL", ssl.create_default_context(cafile=other.file))


def principal_of(site: Site, client: RawClient, topic: str) -> str:
    """Who the gateway takes a client for: it says so in the audit log."""
    create_topic(client, topic)

    def lines() -> list[str]:
        return [line for line in site.log.splitlines() if f'"{topic}"' in line]

    site.wait_for(lambda: bool(lines()))
    found: str = json.loads(lines()[0])["principal"]
    return found


def test_a_certificate_gives_a_client_its_name(site: Site) -> None:
    alice = site.ca.issue("Alice", attributes=((NameOID.ORGANIZATION_NAME, "Acme, Inc."),))
    bob = site.ca.issue("bob")
    for listener in ("MUTUAL", "ASKING"):
        with site.connect(listener, site.trusting(alice)) as client:
            assert principal_of(site, client, f"of-alice-{listener}") == "User:alice"
        with site.connect(listener, site.trusting(bob)) as client:
            assert principal_of(site, client, f"of-bob-{listener}") == "User:CN=bob"
    for listener in ("ASKING", "SSL", "PLAINTEXT"):
        tls = None if listener == "PLAINTEXT" else site.trusting()
        with RawClient(site.cluster.address_of(listener), tls=tls) as client:
            assert principal_of(site, client, f"of-nobody-{listener}") == "User:ANONYMOUS"


def refused(site: Site, listener: str, certificate: Path | None) -> bool:
    """Whether a client is closed before it gets an answer. In TLS 1.3 it learns that late."""
    try:
        with site.connect(listener, site.trusting(certificate)) as client:
            metadata(client, "t")
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def is_audited(site: Site, wanted: dict[str, Any]) -> bool:
    lines = (json.loads(line) for line in site.log.splitlines() if line.startswith("{"))
    return any(wanted.items() <= each.items() for each in lines)


def test_certificates_that_do_not_count_are_refused(site: Site) -> None:
    stranger = Authority(site.folder / "strangers", "another CA").issue("stranger")
    expired = site.ca.issue("expired", days=-1)
    server = site.ca.issue("for servers", ("localhost",))
    assert refused(site, "MUTUAL", None)
    for certificate in (stranger, expired, server):
        assert refused(site, "MUTUAL", certificate), certificate
        assert refused(site, "ASKING", certificate), certificate
    assert not refused(site, "ASKING", None)
    assert "certificate has expired" in site.log
    for listener, reason in (
        ("MUTUAL", "the client shows no certificate"),
        ("ASKING", "the client's certificate: certificate has expired"),
    ):
        line = {"mechanism": "SSL", "listener": listener, "outcome": "denied", "reason": reason}
        site.wait_for(partial(is_audited, site, line))
    figures = Scrape(site.cluster.gateway.ready["operations"])
    assert figures("quafka_gateway_failed_tls_handshakes_total", reason="certificate") >= 5


def test_a_client_reads_why_it_is_refused_whatever_it_has_sent(site: Site) -> None:
    """In TLS 1.3 a client's handshake is over before the gateway has seen its certificate.

    A close with unread requests would reset the connection.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = site.trusting().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with site.raw("MUTUAL") as client:
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        while True:
            client.sendall(outgoing.read())
            incoming.write(client.recv(1 << 16))
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                break
        tls.write(struct.pack(">ihhih", 10, 18, 0, 1, -1) * 5_000)
        client.sendall(outgoing.read())
        while received := client.recv(1 << 16):  # in the end an orderly close
            incoming.write(received)
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            tls.read(1)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">ihhih", 20, 3, 9, 1, -1), "a request without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"\x80\x2e\x01\x03\x01", "not a TLS handshake"),
        (b"\x16\x03\x01\xff\xff" + bytes(100), "not TLS records"),
        (b"\x16\x03\x01\x00\x40" + bytes(64), "the TLS handshake failed"),
    ],
)
def test_what_is_no_handshake_is_closed_at_once(site: Site, sent: bytes, reason: str) -> None:
    with site.raw() as client:
        client.sendall(sent)
        try:
            while client.recv(100):
                pass
        except ConnectionResetError:
            pass
        port = client.getsockname()[1]
    site.wait_for(lambda: f":{port}: " in site.log)
    (line,) = [line for line in site.log.splitlines() if f":{port}: " in line]
    assert reason in line


def test_a_tls_client_at_a_plain_listener_is_closed(site: Site) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        site.connect("PLAINTEXT", site.trusting())


@pytest.mark.long
def test_a_handshake_has_a_deadline(site: Site) -> None:
    began = time.monotonic()
    with site.raw() as silent, site.raw() as slow:
        for byte in client_hello():
            slow.sendall(bytes([byte]))
            if time.monotonic() - began > 0.5:
                break
            time.sleep(0.01)
        for client in (silent, slow):
            assert closed(client)
    assert TIMEOUT - 0.1 <= time.monotonic() - began < TIMEOUT + 5
    assert not refused(site, "SSL", None)


def closed(client: socket.socket) -> bool:
    """Wait until the gateway closes, in order or not."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="h")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def test_bytes_that_come_one_by_one_are_a_handshake_and_requests(site: Site) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = site.trusting().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with site.raw() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    client.sendall(bytes([byte]))
                incoming.write(client.recv(1 << 16))
        tls.write(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        for byte in outgoing.read():
            client.sendall(bytes([byte]))
        incoming.write(client.recv(1 << 16))
        assert tls.read()[4:8] == struct.pack(">i", 7)


def test_librdkafka_writes_and_reads_with_a_certificate(site: Site) -> None:
    settings = {
        "bootstrap.servers": "{}:{}".format(*site.cluster.address_of("MUTUAL")),
        "security.protocol": "ssl",
        "ssl.ca.location": str(site.ca.file),
        "ssl.certificate.location": str(certificate := site.ca.issue("librdkafka")),
        "ssl.key.location": str(certificate),
    }
    producer = Producer(settings)
    for number in range(100):
        producer.produce("of-librdkafka", str(number))
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["of-librdkafka"])
    found = consumer.consume(100, timeout=20)
    consumer.close()
    assert [message.value() for message in found] == [str(n).encode() for n in range(100)]


def test_sasl_over_tls_gives_the_name_and_both_may_be_asked_for(site: Site) -> None:
    alter_users(site.cluster.address, upsertion("carol", "secret"))
    certificate = site.ca.issue("not-carol")
    for listener, presented in (("LOGIN", None), ("BOTH", certificate)):
        with site.connect(listener, site.trusting(presented)) as client:
            assert log_in_plain(client, "carol", "secret").error_code == 0
            assert principal_of(site, client, f"of-carol-{listener}") == "User:carol"
    with site.connect("LOGIN") as client:
        assert log_in_plain(client, "carol", "wrong").error_code != 0
    with pytest.raises((ssl.SSLError, ConnectionError)), site.connect("BOTH") as client:
        log_in_plain(client, "carol", "secret")
    producer = Producer(
        {
            "bootstrap.servers": "{}:{}".format(*site.cluster.address_of("LOGIN")),
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(site.ca.file),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "carol",
            "sasl.password": "secret",
        }
    )
    producer.produce("of-carol", "here")
    assert producer.flush(20) == 0


def test_kafka_python_writes_and_reads_with_a_certificate(site: Site) -> None:
    certificate = str(site.ca.issue("kafka-python"))
    settings = {
        "bootstrap_servers": "{}:{}".format(*site.cluster.address_of("MUTUAL")),
        "security_protocol": "SSL",
        "ssl_cafile": str(site.ca.file),
        "ssl_certfile": certificate,
    }
    producer = KafkaProducer(**settings)
    assert producer.send("of-kafka-python", b"here").get(20).offset == 0
    producer.close()
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 20_000}
    consumer = KafkaConsumer("of-kafka-python", **settings, **options)
    assert next(consumer).value == b"here"
    consumer.close()


def test_a_client_that_says_farewell_hears_one(site: Site) -> None:
    with site.connect("SSL") as client:
        metadata(client, "t")
        assert isinstance(client.socket, ssl.SSLSocket)
        client.socket.unwrap()  # fails without the gateway's close_notify


def serial(site: Site) -> str:
    with site.connect("SSL") as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        found = client.socket.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


def replace(target: Path, content: bytes) -> None:
    new = target.with_suffix(".new")
    new.write_bytes(content)
    new.replace(target)


def test_certificates_are_exchanged_without_a_restart(site: Site) -> None:
    server = site.folder / "server.pem"
    before = serial(site)
    with site.connect("SSL") as open_before:
        metadata(open_before, "t")
        replace(server, b"not a certificate")
        site.wait_for(lambda: "SSL keeps its certificate" in site.log)
        assert serial(site) == before
        replace(server, site.ca.issue("renewed", (HOST,)).read_bytes())
        site.wait_for(lambda: serial(site) != before)
        metadata(open_before, "t")  # goes on as it is
    figures = Scrape(site.cluster.gateway.ready["operations"])
    for listener in ("SSL", "MUTUAL", "ASKING", "LOGIN", "BOTH"):
        ends = figures("quafka_gateway_certificate_expires_seconds", listener=listener)
        assert 29 < (ends - time.time()) / 86_400 <= 30


async def test_an_expired_certificate_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = Authority(tmp_path)
    good, expired = ca.issue("good"), ca.issue("expired", days=-1)
    used = tmp_path / "used.pem"
    used.write_bytes(good.read_bytes())
    settings = TlsSettings(used, used, ciphers="ECDHE+AESGCM")
    tls = TlsContext(KafkaListener("SSL", SecurityProtocol.SSL, HOST, 0), settings)
    assert not caplog.records
    replace(used, expired.read_bytes())
    await tls.check()
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "of listener SSL: it has expired at" in warning.getMessage()
    assert tls.expires < datetime.now(UTC)


def test_files_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    """An encrypted key does so without a question on the terminal."""
    ca = Authority(tmp_path)
    good, sealed = ca.issue("good"), ca.issue("sealed", password="secret")
    ciphers = "ECDHE+AESGCM"
    for settings, reason in (
        (TlsSettings(sealed, sealed, ciphers=ciphers), "the key is encrypted"),
        (TlsSettings(good, ca.issue("other"), ciphers=ciphers), "KEY_VALUES_MISMATCH"),
        (TlsSettings(ca.file, ca.file, ciphers=ciphers), "test-CA.pem"),
        (TlsSettings(tmp_path / "none", good, ciphers=ciphers), "No such file"),
        (TlsSettings(good, good, tmp_path / "none", "required", ciphers=ciphers), "No such file"),
        (TlsSettings(good, good, ciphers="ROT13"), "no such cipher"),
    ):
        with pytest.raises(StartupError, match=reason):
            TlsContext(KafkaListener("SSL", SecurityProtocol.SSL, HOST, 0), settings)
