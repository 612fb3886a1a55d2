"""A consumer in a process of its own: `python -m tests.bench.consumer KIND BOOTSTRAP TOPIC ...`.

It says "ready", begins at a line on its input, and says "done" and the seconds of CPU that it used
meanwhile when it has read the topic's first RECORDS records, PASSES times. PASSES 0: on and on,
until its input ends.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from quafka_proto.headers import encode_request
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.raw_client import RawClient

VERSION = 12
TLS = "ssl://"
"""How an address begins that is spoken to over TLS."""


class Process:
    """One such process, from the parent's side."""

    def __init__(self, kind: str, bootstrap: str, topic: str, records: int, passes: int) -> None:
        words = [kind, bootstrap, topic, str(records), str(passes)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.consumer", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("ready")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def finished(self) -> float:
        """Wait until it is done; returns the seconds of CPU that reading took it."""
        used = float(self._expect("done"))
        self._process.communicate()
        return used

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _expect(self, word: str) -> str:
        """Wait for a line that begins with this word; returns the rest of the line."""
        assert self._process.stdout is not None
        said, _, rest = self._process.stdout.readline().strip().partition(" ")
        if said != word:
            raise RuntimeError(f"a consumer said {said!r}, not {word!r}")
        return rest


class Reading(NamedTuple):
    """Seconds until all consumers had read everything, and the CPU seconds of all of them."""

    seconds: float
    cpu: float


def read_together(
    kind: str, bootstrap: str, topic: str, records: int, passes: int, consumers: int
) -> Reading:
    """Have so many consumers read at the same time."""
    processes = [Process(kind, bootstrap, topic, records, passes) for _ in range(consumers)]
    began = time.perf_counter()
    for process in processes:
        process.go()
    cpu = sum(process.finished() for process in processes)
    return Reading(time.perf_counter() - began, cpu)


class Raw:
    """Fetches on a plain socket and looks at nothing but batch headers: the client costs least."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        host, port = bootstrap.removeprefix(TLS).rsplit(":", 1)
        self._client = RawClient((host, int(port)), timeout=60)
        if bootstrap.startswith(TLS):
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self._client.socket = context.wrap_socket(self._client.socket)
        self._topic = topic
        self._buffer = bytearray(64 << 20)

    def read(self, records: int) -> None:
        offset = 0
        while offset < records:
            offset = self.fetch(offset)

    def fetch(self, offset: int) -> int:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            topics=[FetchTopic(topic=self._topic, partitions=[part])],
        )
        sock = self._client.socket
        sock.sendall(b"".join(encode_request(1, "raw", request, VERSION)))
        size = int.from_bytes(self._exactly(4), "big")
        answer = self._exactly(size)
        return _end(_records(answer), offset)

    def _exactly(self, size: int) -> memoryview:
        view = memoryview(self._buffer)[:size]
        at = 0
        while at < size:
            received = self._client.socket.recv_into(view[at:])
            if not received:
                raise ConnectionError("closed by the server")
            at += received
        return view


def _records(answer: memoryview) -> memoryview:
    """The records in an answer of version 12 with one partition, found without decoding it."""
    at = 5 + 10 + 1  # header; throttle time, error, session; one topic
    at += answer[at] + 1  # its name is short: the byte before it is its length and one
    error = int.from_bytes(answer[at + 4 : at + 6], "big")
    if error:
        raise RuntimeError(f"error {error}")
    at += 4 + 2 + 3 * 8  # index, error, three offsets
    aborted = answer[at]
    assert aborted in (0, 1), "no transactions here"
    at += 1 + 4  # preferred replica
    length = shift = 0
    while True:
        byte = answer[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return answer[at : at + max(0, length - 1)]


def _end(records: memoryview, offset: int) -> int:
    """The offset behind the last whole batch."""
    at = 0
    while at + 61 <= len(records):
        length = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        if at + length > len(records):
            break
        base = int.from_bytes(records[at : at + 8], "big")
        offset = base + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at += length
    return offset


class Librdkafka:
    """confluent-kafka, as a program would use it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap.removeprefix(TLS),
                "security.protocol": "ssl" if bootstrap.startswith(TLS) else "plaintext",
                "enable.ssl.certificate.verification": False,
                "group.id": "bench",
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": 262_144,
                # the default, a second, makes it pause now and then with its queue half empty
                "fetch.queue.backoff.ms": 10,
            }
        )
        self._consumer.list_topics(topic, timeout=10)

    def read(self, records: int) -> None:
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        seen = 0
        while seen < records:
            for message in (batch := self._consumer.consume(10_000, timeout=5)):
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
            seen += len(batch)


def main(words: list[str]) -> None:
    kind, bootstrap, topic, records, passes = words
    reader = Raw(bootstrap, topic) if kind == "raw" else Librdkafka(bootstrap, topic)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.process_time()
    turn = 0
    while turn < int(passes) or passes == "0":
        reader.read(int(records))
        turn += 1
    print(f"done {time.process_time() - began:.3f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
