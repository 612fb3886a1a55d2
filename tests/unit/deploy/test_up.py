"""What `quafka up` passes to its programs, and what it prints about their pages."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from quafka.greetings import ReadyReport
from quafka.plan import Plan, PlannedChild, plan_file, read_plan
from quafka.settings import PROGRAMS, known_to_any
from quafka.sources import Effective, load
from quafka.up import plan
from quafka_mesh_ops.settings import CommonSettings

READY = {"mesh": "127.0.0.1:5000", "listeners": "PLAINTEXT://127.0.0.1:9092",
         "advertised_listeners": "PLAINTEXT://127.0.0.1:9092"}  # fmt: skip
NAMES = ("broker", "gateway", "gateway 1", "gateway 2")


def effective(folder: Path, **flags: str) -> Effective[CommonSettings]:
    given = {"data": str(folder), "listen": "127.0.0.1:0", **flags}
    return load(PROGRAMS["up"], given, {}, known_to_any())


def made(settings: Effective[CommonSettings]) -> Plan:
    names = ("broker", "gateway")
    return plan(settings, {name: Path(name) for name in names}, dict.fromkeys(names, "ab" * 32))


def operations(child: PlannedChild, **reports: dict[str, str]) -> tuple[str, str]:
    """The flags about the operations port, with these reports by name."""
    silent: dict[str, dict[str, str]] = {name: {} for name in NAMES}
    flags = child.arguments({**silent, **reports})
    return flags["--ops-listen"], flags["--ops-port-fallback"]


def test_the_ports_of_the_documentation_are_tried_and_may_be_replaced(tmp_path: Path) -> None:
    broker, first, second = made(effective(tmp_path, workers="2")).children
    assert operations(broker) == ("127.0.0.1:9193", "true")
    elsewhere = READY | {"operations": "127.0.0.1:40001"}
    assert operations(broker, broker=elsewhere) == ("127.0.0.1:40001", "true"), "kept at a restart"
    assert operations(first) == ("127.0.0.1:9093", "true")
    assert operations(second, **{"gateway 1": elsewhere}) == ("127.0.0.1:9094", "true")


def test_configured_ports_are_not_replaced(tmp_path: Path) -> None:
    address = "127.0.0.1:9093"
    found = made(effective(tmp_path, gateway_ops_listen=address, broker_ops_listen="[::1]:0"))
    shown = [operations(each, broker=READY) for each in found.children]
    assert shown == [("[::1]:0", "false"), (address, "false")]


def test_gateways_get_the_addresses_that_were_reported(tmp_path: Path) -> None:
    _, first, second = made(effective(tmp_path, workers="2")).children
    reports = {"broker": READY, "gateway 1": {"listen": "127.0.0.1:40009"}, "gateway 2": {}}
    for each in (first, second):
        flags = each.arguments(reports)
        assert flags["--mesh-peers"] == READY["mesh"]
        assert flags["--listen"] == "127.0.0.1:40009"


@pytest.mark.parametrize("ready_fd", [None, 7])
def test_a_plan_reaches_the_process_that_supervises(tmp_path: Path, ready_fd: int | None) -> None:
    up = made(effective(tmp_path, workers="2"))
    workers = Plan(up.children, ReadyReport(ready_fd), lifeline_fd=5)
    for planned in (up, workers):
        with os.fdopen(plan_file(planned)) as file:
            assert read_plan(os.dup(file.fileno())) == as_read(planned)


def as_read(planned: Plan) -> Plan:
    """A plan as JSON has it: with lists."""
    children = [
        replace(each, reported={flag: [*key] for flag, key in each.reported.items()})  # type: ignore[misc]
        for each in planned.children
    ]
    return replace(planned, children=children)


def test_it_prints_why_a_page_is_elsewhere(tmp_path: Path) -> None:
    broker = READY | {"operations": "127.0.0.1:40001"}
    gateway = READY | {"operations": "127.0.0.1:9093"}
    printed = made(effective(tmp_path)).greeting.show({"broker": broker, "gateway": gateway})
    assert "status          http://127.0.0.1:9093/statusz (gateway)\n" in printed
    assert "http://127.0.0.1:40001/statusz (broker; port 9193 is in use)\n" in printed


def test_it_prints_who_may_connect(tmp_path: Path) -> None:
    named = {"listeners": "PLAINTEXT://127.0.0.1:1,IN://127.0.0.1:2",
             "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,IN:PLAINTEXT"}  # fmt: skip
    ready = READY | {"operations": "127.0.0.1:9093", "listeners": named["listeners"],
                     "advertised_listeners": "PLAINTEXT://127.0.0.1:1,IN://b:3"}  # fmt: skip
    printed = made(effective(tmp_path, listen="127.0.0.1:9092", **named)).greeting.show(
        {"broker": ready, "gateway": ready}
    )
    assert (
        "  Kafka clients   PLAINTEXT://127.0.0.1:1\n"
        "                  IN://127.0.0.1:2 (PLAINTEXT) (advertised as b:3)\n"
        "                  open to everyone on this host: no authentication\n"
    ) in printed
