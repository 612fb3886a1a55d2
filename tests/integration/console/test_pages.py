"""A person walks through the console."""

from __future__ import annotations

import csv
import io
import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from quafka_proto.record_codec import Record, build_batch
from tests.support.cluster import Cluster, Process
from tests.support.driver import Driver, driven
from tests.support.kafka_calls import create_topic, produce, produce_batch
from tests.support.raw_client import RawClient


def test_the_overview_shows_the_processes_and_charts(driver: Driver) -> None:
    driver.open("/", "Nothing needs attention")
    for text in ("gateway", "broker", "ready", "Requests per second"):
        driver.see(text)
    driver.click("light or dark")
    driver.click("Topics")
    driver.see("Create a topic")


def test_a_topic_is_created_found_changed_and_deleted(driver: Driver) -> None:
    driver.open("/topics", "Create a topic")
    driver.click("Create a topic")
    driver.type("Name", "not a name!")
    driver.click("Create")
    driver.see("a topic name is 1 to 249 of")
    driver.type("Name", "walked-orders")
    driver.click("Create")
    driver.see("All configs have their defaults")
    driver.open("/topics?search=walked", "walked-orders")
    driver.click("walked-orders")
    driver.see("Change a config")
    driver.click("Delete")
    driver.see("Its records are lost")
    driver.type("name", "walked-orders")
    driver.click("Delete the topic")
    driver.see("Create a topic")
    driver.open("/topic?name=walked-orders", "walked-orders")
    driver.see("no such topic")


def test_lists_are_searched_at_the_server(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        for number in range(60):
            create_topic(client, f"many-{number:02}")
        produce(client, "many-07", b"1", b"2", b"3")
    driver.open("/topics?search=many", "1–50 of 60 topics")
    assert "many-55" not in driver.text()
    driver.click("next page")
    driver.see("many-55")
    driver.type("search topics", "many-07")
    driver.see("1–1 of 1 topics")
    driver.see("3")


def test_an_unknown_address_has_the_menu(driver: Driver, console: str) -> None:
    driver.open("/topics/orders", "There is no page at this address")
    assert all("status of 404" in each for each in driver.errors())  # of the page itself
    driver.click("Topics")
    driver.see("Create a topic")
    with pytest.raises(urllib.error.HTTPError) as found:
        urllib.request.urlopen(f"{console}/no/such/page", timeout=10)
    assert found.value.code == 404
    page = found.value.read().decode()
    assert "HTTPException" not in page
    assert "Overview" in page


def test_what_does_not_exist_cannot_be_changed(driver: Driver) -> None:
    driver.open("/topic?name=never-made", "no such topic")
    assert "Delete" not in driver.text()
    driver.open("/group?name=never-made", "never-made")
    driver.see("no such group")
    assert "Delete" not in driver.text()


HOSTILE = [
    b"<script>document.title='taken'</script>",
    b"<img src=x onerror=\"document.title='taken'\">",
    b"{{ 7 * 191 }} ${7 * 191} javascript:alert(1)",
    b"\x1b[2J\x1b]0;taken\x07",
    b"\xff\xfe\x00",
    b"x" * 600_000,
]


def test_hostile_records_are_shown_and_do_nothing(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "hostile")
        produce(client, "hostile", *HOSTILE)
    driver.open("/messages?topic=hostile", "6 records")
    text = driver.text()
    assert "<script>document.title" in text
    assert "{{ 7 * 191 }}" in text
    assert "\\x1b[2J" in text
    assert "0xfffe00" in text
    assert "1337" not in text
    for value in ("<img", "<scr", "xxxx"):
        driver.open(f"/messages?topic=hostile&contains={value.replace('<', '%3C')}", "1 records")
        driver.pick(value)
        driver.see("Value, ")
    driver.see("600,000 bytes in all")
    assert driver.chrome.title == "Messages · Quafka"


def test_records_are_found_and_shown_in_full(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "found", 2)
        values = [b'{"order": %d, "lines": [{"sku": "a-%d"}]}' % (n, n) for n in range(300)]
        produce(client, "found", *values)
    driver.open("/messages?topic=found&count=20", "20 records")
    driver.see('{"order": 299')
    driver.type("contains", "a-17", enter=True)
    driver.see("11 records; 300 were looked at")
    driver.pick('"order": 17,')
    driver.see('"sku": "a-17"')
    driver.open("/messages?topic=found&from=offset&at=123&partition=0&count=20", '{"order": 123')
    assert '{"order": 122' not in driver.text()
    driver.open("/messages?topic=found&from=time&at=yesterday", "is not a time")


def test_json_is_folded_and_searched(driver: Driver, shared_cluster: Cluster) -> None:
    script = "<img src=x onerror=\"document.title='taken'\">"
    value = {"order": {f"field-{n}": {"amount": n, script: script} for n in range(20)}}
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "folded")
        produce(client, "folded", json.dumps(value).encode())
    driver.open("/messages?topic=folded", "1 records")
    driver.pick("field-0")
    driver.press("Fold and search")
    driver.see("order (20)")
    driver.type("search the value", "amount: 17")
    driver.see("field-17 (2)")
    driver.type("search the value", "onerror")
    driver.see(f'{script}: "<img')
    assert driver.chrome.title == "Messages · Quafka"


def test_filters_are_combined_and_in_the_address(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "filtered")
        headers: list[tuple[str, bytes | None]] = [("source", b"web")]
        produce_batch(
            client, "filtered",
            build_batch(
                Record(n, 1_000 * n, b"key-%d" % n, b'{"order": {"id": %d}}' % n, headers * (n % 2))
                for n in range(60)
            ),
        )  # fmt: skip
    driver.open("/messages?topic=filtered&until=1970-01-01T00:00:50", "50 records")
    driver.type("value path", "order.id>=40 and order.id<49", enter=True)
    driver.see("9 records; 50 were looked at")
    driver.type("header", "source=web", enter=True)
    driver.see("4 records; 50 were looked at")
    driver.type("key", "=key-43", enter=True)
    driver.see("1 records; 50 were looked at")
    driver.chrome.refresh()
    driver.see("1 records; 50 were looked at")
    driver.see('{"order": {"id": 43}}')
    driver.type("value path", "order.id>", enter=True)
    driver.see("the value filter, character 10: expected a value after `>`")
    driver.open("/messages?topic=filtered&value=order.id%3D999&from=oldest", "No record matches")
    driver.see("60 were looked at")


def test_records_show_what_became_of_their_transaction(
    driver: Driver, shared_cluster: Cluster
) -> None:
    settings = {"bootstrap.servers": shared_cluster.bootstrap}
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "decided")
    producer = Producer({**settings, "transactional.id": "decided"})
    producer.init_transactions(60)
    for value, ends in (
        ("is kept", producer.commit_transaction), ("is gone", producer.abort_transaction),
        ("is held", None),
    ):  # fmt: skip
        producer.begin_transaction()
        producer.produce("decided", value, partition=0)
        producer.flush(60)
        if ends is not None:
            ends(60)
    driver.open("/messages?topic=decided", "5 records")
    for text in ("committed", "aborted", "held back", "(abort of a transaction)"):
        driver.see(text)
    driver.pick("is gone")
    driver.see("Its transaction was aborted")
    driver.open("/messages?topic=decided&isolation=committed", "1 records")
    driver.see("is kept")
    assert "is gone" not in driver.text()
    producer.abort_transaction(60)


def _download(console: str, query: str, **headers: str) -> tuple[int, str, bytes]:
    request = urllib.request.Request(f"{console}messages/download?{query}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.headers.get("content-disposition", ""), answer.read()
    except urllib.error.HTTPError as e:
        return e.code, "", e.read()


def test_the_selection_is_downloaded(driver: Driver, console: str, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "taken")
        produce(client, "taken", *[b'{"n": %d}' % n for n in range(600)], b"=1", b"x" * 100_000)
    status, name, body = _download(console, "topic=taken&from=oldest&value=n%3C598&format=jsonl")
    lines = [json.loads(line) for line in body.splitlines()]
    assert (status, name) == (200, 'attachment; filename="taken.jsonl"')
    assert [json.loads(line["value"])["n"] for line in lines] == list(range(598))
    status, _, body = _download(console, "topic=taken&partition=0&format=csv")
    rows = list(csv.reader(io.StringIO(body.decode(), newline="")))
    assert (status, len(rows)) == (200, 603)
    assert [rows[2][6], len(rows[1][6])] == ["'=1", 100_000], "the newest first, and whole"
    status, _, body = _download(console, "topic=taken&contains=597&format=parquet")
    assert (status, body[:4]) == (200, b"PAR1")
    for query, code, sentence in (
        ("topic=taken&format=xlsx", 400, b"not a format"),
        ("topic=taken&format=csv&at=x&from=offset", 400, b"not an offset"),
        ("topic=not-there&format=csv", 400, b"no such topic"),
    ):
        status, _, body = _download(console, query)
        assert status == code
        assert sentence in body
    other: dict[str, str] = {"Sec-Fetch-Site": "cross-site"}
    assert _download(console, "topic=taken&format=csv", **other)[0] == 403
    driver.open("/messages?topic=taken&contains=597", "1 records")
    driver.click("Download")
    for text in ("JSON lines", "CSV", "Parquet", "At most 10,000 records or 64.0 MiB"):
        driver.see(text)


def test_a_record_is_produced_and_copied(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "written", 2)
    driver.open("/messages?topic=written", "No records here")
    driver.click("Produce")
    driver.type("partition to write to", "7")
    driver.type("value to write", '{"id": 1}')
    driver.type("headers to write", "source=hand")
    driver.click("Produce")
    driver.see("has no partition 7")
    driver.type("partition to write to", "1")
    driver.click("Produce")
    driver.see("1 records")
    driver.pick('{"id": 1}')
    driver.see("hand")
    driver.click("Copy")
    driver.type("value to write", '{"id": 2}')
    driver.click("Produce")
    driver.see("2 records")
    driver.open("/messages?topic=written&partition=1&header=source%3Dhand&key=%3D", "No record")
    driver.open("/messages?topic=written&partition=1&header=source%3Dhand", "2 records")
    driver.open("/audit", "produce to topic")
    driver.see("has no partition 7")


class _Registry(BaseHTTPRequestHandler):
    """A schema registry with one schema."""

    def do_GET(self) -> None:
        fields = [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}]
        schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
        answers: dict[str, Any] = {
            "/schemas/ids/7": {"schema": schema}, "/schemas/ids/7/subjects": ["typed-value"],
        }  # fmt: skip
        body = json.dumps(answers.get(self.path, {})).encode()
        self.send_response(200 if self.path in answers else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nowhere."""


@pytest.mark.needs("chromium", "chromedriver")
def test_values_of_a_registry_are_decoded(shared_cluster: Cluster, tmp_path: Path) -> None:
    registry = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=registry.serve_forever, daemon=True).start()
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "typed")
        head = b"\0\0\0\0"
        note = b"<script>document.title='taken'</script>"
        produce(
            client, "typed", head + b"\x07\x0e" + bytes([2 * len(note)]) + note,
            head + b"\x08\x00", head + b"\x07\xff",
        )  # fmt: skip
    host, port = shared_cluster.address
    process = Process(
        [
            "console", "--console-nice", "0", "--console-listen", "127.0.0.1:0",
            "--console-brokers", f"{host}:{port}",
            "--console-operations", "",
            "--console-registry-url", f"http://127.0.0.1:{registry.server_port}",
        ],
        tmp_path / "console.log",
    )  # fmt: skip
    try:
        with driven(process.ready["console"], tmp_path / "profile") as driver:
            for _ in range(100):  # on a busy machine the registry may answer too late at first
                driver.open("/messages?topic=typed", "3 records")
                if '{"id": 7, "note": "<script>' in driver.text():
                    break
            driver.see('{"id": 7, "note": "<script>')
            driver.pick('"id": 7')
            driver.see("Avro schema 7 of typed-value")
            driver.see('"id": 7,')
            driver.see("as it is stored")
            driver.see(r"\x00\x00\x00\x00\x07\x0e")
            driver.click("close")
            driver.pick(r"\x00\x08\x00")
            driver.see("the registry does not have schema 8")
            driver.click("close")
            driver.pick("0x0000000007ff")
            driver.see("the value does not fit its Avro schema")
            driver.open("/messages?topic=typed&value=id%3D7+and+note~script", "1 records")
            driver.see("3 were looked at")
            driver.open("/messages?topic=typed&value=id%3D8", "No record matches")
            assert driver.chrome.title == "Messages · Quafka"
            assert driver.errors() == []
    finally:
        registry.shutdown()
        registry.server_close()
        assert process.stop() == 0
