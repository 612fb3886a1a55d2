"""A real Apache Kafka 4.4 of one node (KRaft), whose log folders tests read."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.java import java_class, kafka_tools
from tests.support.ports import lasting_port

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_START_SECONDS = 180.0
_STOP_SECONDS = 30.0
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dirs}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=200
log.retention.check.interval.ms=500
log.initial.task.delay.ms=3600000
file.delete.delay.ms=100
{more}
"""


class ApacheKafka:
    """A broker in a process of its own; `settings` is its `server.properties`."""

    def __init__(self, folder: Path, log_dirs: int = 1, **settings: str) -> None:
        self.folder = folder
        self.log_dirs = [folder / f"logs{n or ''}" for n in range(log_dirs)]
        self.port, controller = lasting_port(), lasting_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.settings = folder / "server.properties"
        folder.mkdir(parents=True, exist_ok=True)
        more = "\n".join(f"{name.replace('_', '.')}={value}" for name, value in settings.items())
        dirs = ",".join(map(str, self.log_dirs))
        self.settings.write_text(
            _PROPERTIES.format(port=self.port, controller=controller, log_dirs=dirs, more=more)
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def format(self, *more: str) -> None:
        """Make the empty log folders; `more` are further arguments, such as --add-scram."""
        tool = java_class("kafka.tools.StorageTool", kafka_tools())
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.settings), *more]
        subprocess.run([*tool, *arguments], capture_output=True, check=True)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [*java_class("kafka.Kafka", kafka_tools()), str(self.settings)]
        with (self.folder / "log").open("ab") as log:
            env = os.environ | {"LOG_DIR": str(self.folder)}
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=env
            )
        give_up = time.monotonic() + _START_SECONDS
        while time.monotonic() < give_up and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.1)
        raise AssertionError(f"Kafka does not start: {(self.folder / 'log').read_text()[-500:]}")

    def stop(self) -> None:
        """A clean shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As by kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(by)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def apache_kafka(folder: Path, log_dirs: int = 1, **settings: str) -> Generator[ApacheKafka]:
    """A started broker with empty folders. Settings are named with underscores for dots."""
    kafka = ApacheKafka(folder, log_dirs, **settings)
    kafka.format()
    kafka.start()
    try:
        yield kafka
    finally:
        kafka.kill()
