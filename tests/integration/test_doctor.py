"""`quafka doctor` where all is well, and on each way in which it is not."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from quafka_client.checks.findings import Report
from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.ports import lasting_port

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the doctor has found, and how it ended."""

    findings: list[dict[str, Any]]
    code: int

    def of(self, check: str) -> dict[str, Any]:
        """The worst finding of a check."""
        order = {"ok": 0, "warn": 1, "fail": 2}
        found = [each for each in self.findings if each["check"] == check]
        return max(found, key=lambda each: order[each["status"]])

    def failed(self, check: str, why: str, fix: str) -> None:
        """This, and nothing before it, has failed."""
        first = next(each for each in self.findings if each["status"] == "fail")
        assert first["check"] == check, first
        assert why in first["message"], first
        assert fix in (first["fix"] or ""), first
        assert self.code == 1


def doctor(brokers: str, *more: str, timeout: float = 5.0) -> Seen:
    quafka = Command(brokers, timeout)
    ran = quafka("doctor --format json", *more, code=None)
    assert ran.err == ""
    assert ran.json["healthy"] is (ran.code == 0)
    return Seen(ran.json["findings"], ran.code)


# --- all is well ------------------------------------------------------------------------------


def test_all_is_well(shared_cluster: Cluster) -> None:
    until = time.monotonic() + 30  # a pause of the machine looks like clocks that differ
    while True:
        seen = doctor(shared_cluster.bootstrap, "--write", "doctor")
        assert seen.code == 0, seen
        if {each["status"] for each in seen.findings} == {"ok"}:
            break
        assert time.monotonic() < until, seen.findings
    checks = [each["check"] for each in seen.findings]
    assert checks == [
        "connect", "kafka", "version", "clock", "mesh", "clock", "cluster", "advertised", "write",
    ]  # fmt: skip
    assert "datagrams of" in seen.of("mesh")["message"]
    assert "round trip" in seen.of("mesh")["message"]
    while True:
        lines = Command(shared_cluster.bootstrap)("doctor").out.splitlines()
        if all(line.startswith("ok ") for line in lines):
            break
        assert time.monotonic() < until, lines


def test_what_cannot_be_written(shared_cluster: Cluster) -> None:
    seen = doctor(shared_cluster.bootstrap, "--write", "no/name")
    seen.failed("write", "no/name", "")
    assert "letters, digits" in seen.of("write")["message"]


# --- the bootstrap address --------------------------------------------------------------------


def test_nothing_listens() -> None:
    seen = doctor(f"{HOST}:{lasting_port()}")
    seen.failed("connect", "nothing listens on", "quafka up")


def test_a_name_that_cannot_be_resolved() -> None:
    seen = doctor("nowhere.invalid:9092")
    seen.failed("connect", "'nowhere.invalid' cannot be resolved", "DNS")


def test_one_of_several_is_enough_to_write(shared_cluster: Cluster) -> None:
    seen = doctor(f"{HOST}:{lasting_port()},{shared_cluster.bootstrap}", "--write", "doctor")
    seen.failed("connect", "nothing listens on", "quafka up")
    assert seen.of("write")["status"] == "ok"


def test_a_web_server() -> None:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer((HOST, 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        seen = doctor(f"{HOST}:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    seen.failed("connect", "is not Kafka", "--brokers")


@contextmanager
def accepting(serve: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """A port on which every connection is served in a thread, until it is over."""
    over = threading.Event()
    with socket.create_server((HOST, 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    serve(connection, over)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_port_that_says_nothing() -> None:
    def silent(_connection: socket.socket, over: threading.Event) -> None:
        over.wait(10)

    with accepting(silent) as port:
        seen = doctor(f"{HOST}:{port}", timeout=2.0)
    seen.failed("connect", "answers nothing within", "--brokers")


def test_a_port_that_hangs_up() -> None:
    def rude(connection: socket.socket, _over: threading.Event) -> None:
        connection.recv(1_000)

    with accepting(rude) as port:
        seen = doctor(f"{HOST}:{port}")
    seen.failed("connect", "closes the connection on the first request", "--brokers")


def test_a_port_that_answers_nonsense() -> None:
    def nonsense(connection: socket.socket, _over: threading.Event) -> None:
        connection.recv(1_000)
        connection.sendall(b"\0\0\0\x05hello")

    with accepting(nonsense) as port:
        seen = doctor(f"{HOST}:{port}")
    seen.failed("connect", "is not Kafka", "--brokers")


def test_a_tls_port(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))

    def tls(connection: socket.socket, _over: threading.Event) -> None:
        connection.settimeout(5)
        with suppress(OSError):  # a client that speaks something else, or does not trust it
            context.wrap_socket(connection, server_side=True).close()

    with accepting(tls) as port:
        seen = doctor(f"{HOST}:{port}")
    seen.failed("connect", "speaks TLS", "security.protocol")


def certificate(folder: Path) -> Path:
    """A self-signed certificate with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    ).sign(key, hashes.SHA256())
    path = folder / "both.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(signed.public_bytes(pem) + private)
    return path


# --- what the gateway tells -------------------------------------------------------------------


def test_an_advertised_address_that_leads_nowhere(tmp_path: Path) -> None:
    told = f"{HOST}:{lasting_port()}"
    with Cluster(tmp_path, gateway_args=("--advertised-listener", told)) as cluster:
        seen = doctor(cluster.bootstrap)
        seen.failed(
            "advertised", f"the advertised address {told} does not work", "advertised.listener"
        )
        assert "nothing listens on" in seen.of("advertised")["message"]
        assert "advertised.listener" in Command(cluster.bootstrap)("groups list", code=1).err


# --- findings ---------------------------------------------------------------------------------


def test_a_sentence_with_its_fix_becomes_a_finding() -> None:
    report = Report()
    report.ok("a", "fine")
    report.warn("b", "so so", "do this")
    before = report.healthy
    report.fail("c", "not at all; do that; or that")
    assert (before, report.healthy) == (True, False)
    last = report.findings[2]
    assert (last.message, last.fix) == ("not at all", "do that; or that")
