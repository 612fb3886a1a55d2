"""`quafka produce` and `quafka consume` against real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest

from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.group_members import GROUPS
from tests.support.ports import lasting_port
from tests.support.registry_server import serving


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("records"), broker_args=GROUPS) as running:
        yield running


@pytest.fixture
def quafka(cluster: Cluster) -> Command:
    return Command(cluster.bootstrap)


def test_lines_there_and_back(quafka: Command) -> None:
    lines = b"a:1\nb:2:3\nno key\n\nlast"
    written = quafka("produce -t lines -K : -H source=test -z zstd", stdin=lines)
    assert written.out == "wrote 5 records to lines\n"
    read = quafka("consume -t lines -e -f", "%o %k|%s|%h\n")
    assert read.out.splitlines() == [
        "0 a|1|source=test",
        "1 b|2:3|source=test",
        "2 |no key|source=test",
        "3 ||source=test",
        "4 |last|source=test",
    ]
    assert quafka("consume -t lines -e -n 2").out == "1\n2:3\n"


@pytest.mark.long
def test_files(quafka: Command, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"x\ny\n")
    two.write_bytes(b"\xff")
    quafka(f"produce -t files -k key {one} {two}")
    first, second = map(json.loads, quafka("consume -t files -e --format json").out.splitlines())
    assert (first["key"], first["value"], first["offset"]) == ("key", "x\ny\n", 0)
    assert (second["value"], second["value_base64"]) == (None, "/w==")
    quafka(f"produce -t files -l {one}")
    assert quafka("consume -t files -e -o 2").out == "x\ny\n"
    assert "cannot read" in quafka(f"produce -t files {tmp_path / 'none'}", code=1).err
    assert "--lines needs files" in quafka("produce -t files -l", code=2).err


def test_json_there_and_back(quafka: Command) -> None:
    quafka("topics create json -p 3")
    line = {"key": "k", "value": "v", "headers": [{"key": "h", "value": "1"}], "timestamp": 5_000}
    nothing = {"key": "gone", "value": None}
    stdin = "\n".join(map(json.dumps, (line, nothing))).encode()
    told = quafka("produce -t json -p 2 --input json --format json", stdin=stdin).out.splitlines()
    assert [(t["topic"], t["partition"], t["offset"]) for t in map(json.loads, told)] == [
        ("json", 2, 0), ("json", 2, 1),
    ]  # fmt: skip
    copied = quafka("consume -t json -e --format json").out
    first, second = map(json.loads, copied.splitlines())
    assert first == {"topic": "json", "partition": 2, "offset": 0, **line}
    assert (second["key"], second["value"], second["headers"]) == ("gone", None, [])
    quafka("produce -t copy --input json", stdin=copied.encode())
    again = json.loads(quafka("consume -t copy -e -n 1 --format json").out)
    assert again == {**first, "topic": "copy", "partition": 0}
    wrong = quafka("produce -t json --input json", stdin=b"{}\n[]\n", code=1).err
    assert "stdin, line 2: not a JSON object" in wrong


@pytest.mark.long
def test_where_to_begin(quafka: Command) -> None:
    lines = "\n".join(json.dumps({"value": str(n), "timestamp": 1_000 + n}) for n in range(10))
    quafka("produce -t begin --input json", stdin=lines.encode())

    def read(position: str) -> list[int]:
        return [int(line) for line in quafka(f"consume -t begin -e -o {position}").out.split()]

    assert read("start") == list(range(10))
    assert read("7") == [7, 8, 9]
    assert read("-2") == [8, 9]
    assert read("-99") == list(range(10))
    assert read("@1006") == [6, 7, 8, 9]
    assert read("@2000") == read("end") == read("99") == []
    assert "no partition 1" in quafka("consume -t begin -p 1", code=2).err
    assert "no such topic" in quafka("consume -t nowhere -e", code=1).err
    assert "%q is not a token" in quafka("consume -t begin -f %q", code=2).err


def test_as_a_member_of_a_group(quafka: Command) -> None:
    quafka("produce -t grouped", stdin=b"0\n1\n2\n3\n")
    assert quafka("consume -t grouped -g members -n 3").out == "0\n1\n2\n"
    assert quafka("consume -t grouped -g members -e").out == "3\n"
    assert quafka("consume -t grouped -g members -e").out == ""
    (row,) = [row for row in quafka("groups list").rows if row[0] == "members"]
    assert row == ["members", "classic", "Empty", "0", "0", "0s"]
    assert "reset-offsets" in quafka("consume -t grouped -g members -o 5", code=2).err
    assert (
        "cannot be combined with --group"
        in quafka("consume -t grouped -g members -p 0", code=2).err
    )


def test_rows_of_csv(quafka: Command, tmp_path: Path) -> None:
    quafka("topics create rows -p 2")
    csv = b"id,part,at,note\n1,1,2026-01-01T00:00:00Z,-\n2,0,5,x\n"
    quafka(
        "produce -t rows --input csv --key-from id --partition-from part --timestamp-from at "
        "--value-from note --header-from n=note --null-marker - --acks 1 --rate 1000",
        stdin=csv,
    )
    read = quafka("consume -t rows -e -f", "%p %k %T %S %h|").out.split("|")
    assert sorted(read) == ["", "0 2 5 1 n=x", "1 1 1767225600000 -1 n"]
    wrong = quafka("produce -t rows --input jsonl -p 0", stdin=b"1\n{\n", code=1).err
    assert "stdin, line 2: not JSON" in wrong
    assert "(records before it that were written: 1)" in wrong
    assert quafka("consume -t rows -e -p 0 -o -1").out == "1\n"


@pytest.mark.long
def test_avro_by_a_registry_there_and_back(quafka: Command, tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "sku", "type": "string"}]
    schema = {"type": "record", "name": "o", "fields": fields}
    file = tmp_path / "orders.avro"
    with file.open("wb") as out:
        fastavro.writer(out, schema, [{"id": n, "sku": f"s{n}"} for n in range(3)])
    with serving({"/schemas/ids/1": {"schema": json.dumps(schema)}}) as url:
        registry = f"--registry {url}"
        written = f"--input avro --key-from id --value-schema 1 {registry}"
        quafka(f"produce -t avro {file} {written}")
        shown = quafka(f"consume -t avro -e {registry} --format json").out
        assert [json.loads(each)["value"]["sku"] for each in shown.splitlines()] == [
            "s0", "s1", "s2",
        ]  # fmt: skip
        quafka(f"produce -t again --input json --value-schema 1 {registry}", stdin=shown.encode())
        first, second = (
            quafka(f"consume -t {topic} -e --value-as hex -f", "%k %s|").out
            for topic in ("avro", "again")
        )
        assert first == second
        assert first.startswith("0 00000000010004")
        missing = quafka(f"produce -t avro {file} --input avro --value-schema 9 {registry}", code=1)
        assert missing.err == "quafka: the registry does not have schema 9\n"


def test_filters_ends_and_counts(quafka: Command) -> None:
    quafka("topics create filtered -p 2")
    for partition in (0, 1):
        lines = "".join(
            json.dumps({"key": f"k{n}", "value": json.dumps({"n": n}), "timestamp": 1_000 + n})
            + "\n"
            for n in range(10)
        )
        quafka(f"produce -t filtered -p {partition} --input json", stdin=lines.encode())

    def values(flags: str) -> list[int]:
        return sorted(json.loads(line)["n"] for line in quafka(f"consume {flags}").out.splitlines())

    assert values("-t filtered -e --where n>=8") == [8, 8, 9, 9]
    assert values("-t filtered -n 3 -p 1 --key k") == [0, 1, 2]
    assert values("-t filtered -o 2 --until 4") == [2, 2, 3, 3]
    assert values("-t filtered -o @1007 --until @1009 -p 0") == [7, 8]
    assert values("-t filtered -o 5 --until 5") == []
    assert quafka("consume -t filtered --count").out == "20\n"
    counted = quafka("consume -t filtered --count --until 3 --grep k[12] --format json").json
    assert counted["records"] == 4
    assert counted["partitions"][1] == {"topic": "filtered", "partition": 1, "records": 2}
    assert quafka("consume -t filtered -g filtering --where n=7 -e").out.count("7") == 2
    assert quafka("consume -t filtered -g filtering -e").out == "", "what it leaves out is read"


@pytest.mark.long
def test_values_are_decoded_by_a_registry(quafka: Command, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "o", "fields": [{"name": "id", "type": "long"}]}
    answers = {"/schemas/ids/1": {"schema": json.dumps(schema)},
               "/schemas/ids/2": {"schemaType": "JSON", "schema": "{}"}}  # fmt: skip
    files = {"avro": b"\0\0\0\0\1\x0e", "json": b'\0\0\0\0\2{"id": 8}', "plain": b"as it is"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    quafka("produce -t decoded " + " ".join(str(tmp_path / name) for name in files))
    (tmp_path / "password").write_text("hush\n")
    with serving(answers, "Basic bWU6aHVzaA==") as url:
        user = f"--registry-user me --registry-password-file {tmp_path / 'password'}"
        read = f"consume -t decoded -e --registry {url}"
        assert quafka(f"{read} {user}").out == '{"id": 7}\n{"id": 8}\nas it is\n'
        (found,) = quafka(f"{read} {user} --where id=7 --format json").out.splitlines()
        assert (json.loads(found)["value"], json.loads(found)["value_schema"]) == ({"id": 7}, 1)
        refused = quafka(read, code=1).err
        assert "offset 0: the registry refuses this user or password (status 401)" in refused
        (tmp_path / "other").write_bytes(b"\0\0\0\0\x09")
        quafka(f"produce -t decoded {tmp_path / 'other'}")
        missing = quafka(f"{read} {user} -o 3", code=1).err
        assert missing == (
            "quafka: topic 'decoded', partition 0, offset 3: the registry does not have schema 9\n"
        )


@pytest.mark.long
def test_what_the_broker_refuses(quafka: Command) -> None:
    quafka("topics create small -c max.message.bytes=100")
    refused = quafka("produce -t small", stdin=b"x" * 1_000, code=1).err
    assert "1 of 1 records were not written" in refused
    assert "no partition 5" in quafka("produce -t small -p 5", stdin=b"x", code=2).err


@pytest.mark.long
def test_ctrl_c(quafka: Command) -> None:
    quafka("produce -t endless", stdin=b"first\n")
    running = quafka.start("consume -t endless")
    assert running.stdout is not None
    assert running.stdout.readline() == b"first\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=10)
    assert (running.returncode, out, err) == (130, b"", b"")


@pytest.mark.long
def test_nobody_reads_any_more(quafka: Command) -> None:
    quafka("produce -t much", stdin=b"%d\n" * 50_000)
    running = quafka.start("consume -t much")
    assert running.stdout is not None
    assert running.stdout.read(3) == b"%d\n"
    running.stdout.close()
    assert running.wait(timeout=10) == 141
    assert running.stderr is not None
    assert running.stderr.read() == b""
    running.stderr.close()


@pytest.mark.long
def test_what_is_typed_is_there_at_once(quafka: Command) -> None:
    running = quafka.start("produce -t typed --format json", stdin=subprocess.PIPE)
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(b"now\n")
    running.stdin.flush()
    assert json.loads(running.stdout.readline())["offset"] == 0
    out, err = running.communicate(timeout=10)
    assert (running.returncode, out, err) == (0, b"", b"")


@pytest.mark.long
def test_nobody_is_there() -> None:
    address = f"127.0.0.1:{lasting_port()}"
    began = time.monotonic()
    for command in ("consume -t x", "produce -t x", "topics list", "groups list"):
        assert "nothing listens on" in Command(address)(command, code=1).err
    assert time.monotonic() - began < 20
