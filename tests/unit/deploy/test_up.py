"""What `quafka up` passes to its programs, and what it prints about their pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka.settings import PROGRAMS, UpConfig, known_to_any
from quafka.sources import Effective, load
from quafka.supervise import Child
from quafka.up import children, greet
from quafka_mesh_ops.settings import CommonSettings

READY = {"mesh": "127.0.0.1:5000", "listeners": "PLAINTEXT://127.0.0.1:9092",
         "advertised_listeners": "PLAINTEXT://127.0.0.1:9092"}  # fmt: skip


def effective(folder: Path, **flags: str) -> Effective[CommonSettings]:
    given = {"data": str(folder), "listen": "127.0.0.1:0", **flags}
    return load(PROGRAMS["up"], given, {}, known_to_any())


def made(settings: Effective[CommonSettings]) -> list[Child]:
    names = ("broker", "gateway")
    return children(settings, {name: Path(name) for name in names}, dict.fromkeys(names, "ab" * 32))


def operations(child: Child) -> tuple[str, str]:
    """The flags about the operations port."""
    flags = child.arguments()
    return flags["--ops-listen"], flags["--ops-port-fallback"]


def test_the_ports_of_the_documentation_are_tried_and_may_be_replaced(tmp_path: Path) -> None:
    broker, first, second = made(effective(tmp_path, workers="2"))
    assert operations(broker) == ("127.0.0.1:9193", "true")
    broker.ready = READY | {"operations": "127.0.0.1:40001"}
    assert operations(broker) == ("127.0.0.1:40001", "true"), "a restart keeps the port"
    assert operations(first) == ("127.0.0.1:9093", "true")
    first.ready = READY | {"operations": "127.0.0.1:9093"}
    assert operations(second) == ("127.0.0.1:9094", "true")


def test_configured_ports_are_not_replaced(tmp_path: Path) -> None:
    address = "127.0.0.1:9093"
    found = made(effective(tmp_path, gateway_ops_listen=address, broker_ops_listen="[::1]:0"))
    found[0].ready = READY
    assert [operations(each) for each in found] == [("[::1]:0", "false"), (address, "false")]


def test_it_prints_why_a_page_is_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = effective(tmp_path)
    assert isinstance(settings.config, UpConfig)
    broker, gateway = made(settings)
    broker.ready = READY | {"operations": "127.0.0.1:40001"}
    gateway.ready = READY | {"operations": "127.0.0.1:9093"}
    greet(settings.config, broker, [gateway])
    printed = capsys.readouterr().out
    assert "status          http://127.0.0.1:9093/statusz (gateway)\n" in printed
    assert "http://127.0.0.1:40001/statusz (broker; port 9193 is in use)\n" in printed
