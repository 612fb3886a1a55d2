"""What `quafka up` passes to its programs, and what it prints about their pages."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from quafka.greetings import ReadyReport
from quafka.plan import Plan, PlannedChild, plan_file, read_plan
from quafka.settings import PROGRAMS, known_to_any
from quafka.sources import Effective, SettingError, load
from quafka.up import plan
from quafka.up_console import UpConsole, open_console
from quafka_mesh_ops.settings import CommonSettings
from quafka_telemetry.startup import StartupError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OTEL_", "QUAFKA_"))]:
        monkeypatch.delenv(name)


READY = {"mesh": "127.0.0.1:5000", "listeners": "PLAINTEXT://127.0.0.1:9092",
         "advertised_listeners": "PLAINTEXT://127.0.0.1:9092"}  # fmt: skip
CONSOLE = UpConsole("127.0.0.1:9094", 5)
NAMES = ("broker", "gateway", "gateway 1", "gateway 2")


def effective(folder: Path, **flags: str) -> Effective[CommonSettings]:
    given = {"data": str(folder), "listen": "127.0.0.1:0", **flags}
    return load(PROGRAMS["up"], given, {}, known_to_any())


def made(settings: Effective[CommonSettings], console: UpConsole | None = None) -> Plan:
    names = ("broker", "gateway")
    keys = {name: Path(name) for name in names}
    return plan(settings, keys, dict.fromkeys(names, "ab" * 32), console)


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
    for planned in (up, workers, made(effective(tmp_path), CONSOLE)):
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


def console_of(settings: Effective[CommonSettings]) -> PlannedChild:
    found = made(settings, CONSOLE).extra
    assert found is not None
    return found


def test_the_console_gets_the_addresses_that_were_reported(tmp_path: Path) -> None:
    reports = {
        "broker": READY | {"operations": "127.0.0.1:9193"},
        "gateway 1": READY | {"operations": "127.0.0.1:9093"},
        "gateway 2": READY | {"operations": "127.0.0.1:40001"},
    }
    child = console_of(effective(tmp_path, workers="2", console_read_only="true"))
    flags = child.arguments(reports)
    assert flags["--console-brokers"] == "127.0.0.1:9092"
    assert flags["--console-operations"] == (
        "http://127.0.0.1:9193,http://127.0.0.1:9093,http://127.0.0.1:40001"
    )
    assert flags["--console-listen"] == CONSOLE.address
    assert flags["--console-read-only"] == "true"
    assert child.listening_fd == CONSOLE.fd


@pytest.mark.parametrize(
    ("listeners", "expected", "protocol"),
    [
        ("SASL_PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2", "b:2", "PLAINTEXT"),
        ("PLAINTEXT://0.0.0.0:1,IN://127.0.0.1:2", "b:2", "PLAINTEXT"),
        ("SASL_PLAINTEXT://127.0.0.1:1", "b:1", "SASL_PLAINTEXT"),
    ],
)
def test_without_a_properties_file_it_needs_no_login_if_there_is_such_a_listener(
    tmp_path: Path, listeners: str, expected: str, protocol: str
) -> None:
    advertised = listeners.replace("127.0.0.1", "b").replace("0.0.0.0", "b")
    child = console_of(
        effective(
            tmp_path, listen="127.0.0.1:9092", listeners=listeners, advertised_listeners=advertised,
            listener_security_protocol_map="IN:PLAINTEXT",
        )
    )  # fmt: skip
    report = READY | {"operations": "x:1", "advertised_listeners": advertised}
    flags = child.arguments({"broker": report, "gateway": report})
    assert flags["--console-brokers"] == expected
    assert child.environment == {"QUAFKA_SECURITY_PROTOCOL": protocol}


def test_a_properties_file_chooses_the_listener(tmp_path: Path) -> None:
    file = tmp_path / "console.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n")
    listeners = "PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://127.0.0.1:2"
    secured = {"listen": "127.0.0.1:9092", "console_command_config": str(file)}
    child = console_of(effective(tmp_path, listeners=listeners, **secured))
    report = READY | {"operations": "x:1", "advertised_listeners": listeners}
    flags = child.arguments({"broker": report, "gateway": report})
    assert flags["--console-brokers"] == "127.0.0.1:2"
    assert child.environment == {}
    with pytest.raises(StartupError, match="SASL_PLAINTEXT"):
        console_of(effective(tmp_path, **secured))
    file.write_text("security.protocol=SASL_PLANTEXT\n")
    with pytest.raises(SettingError, match="SASL_PLANTEXT"):
        console_of(effective(tmp_path, **secured))


def test_programs_send_their_traces_to_the_console(tmp_path: Path) -> None:
    broker, gateway = made(effective(tmp_path), CONSOLE).children
    for each in (broker, gateway):
        assert each.environment["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == (
            "http://127.0.0.1:9094/v1/traces"
        )
        assert each.flags["--ops-trace-url"] == "http://127.0.0.1:9094/trace?id={trace_id}"
    assert gateway.flags["--trace-spans-per-second"] == "100"
    assert "--trace-spans-per-second" not in broker.flags


def test_what_is_configured_about_traces_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = {"ops_trace_url": "http://j/{trace_id}", "trace_spans_per_second": "7"}
    for each in made(effective(tmp_path, **configured), CONSOLE).children:
        assert each.flags["--ops-trace-url"] == "http://j/{trace_id}"
        assert each.flags.get("--trace-spans-per-second", "7") == "7"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    for each in made(effective(tmp_path), CONSOLE).children:
        assert each.environment == {}
        assert each.flags["--ops-trace-url"] == ""


def test_where_people_sign_in_exports_have_a_token(tmp_path: Path) -> None:
    secured = effective(
        tmp_path, listen="127.0.0.1:9092", listeners="SASL_PLAINTEXT://127.0.0.1:1",
        console="true", console_listen="127.0.0.1:0", ops_token_file=str(tmp_path / "ops"),
    )  # fmt: skip
    console = open_console(secured)
    assert console is not None
    os.close(console.fd)
    file = console.traces_token_file
    assert file is not None
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    found = made(secured, console)
    for each in found.children:
        assert each.environment["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] == (
            f"Authorization=Bearer%20{token}"
        )
    assert found.extra is not None
    assert found.extra.flags["--console-traces-token-file"] == str(file)
    assert found.extra.flags["--console-operations-token-file"] == str(tmp_path / "ops")


def shown(settings: Effective[CommonSettings], console: UpConsole | None, **report: str) -> str:
    ready = READY | {"operations": "127.0.0.1:1"} | report
    return made(settings, console).greeting.show({"broker": ready, "gateway": ready})


def test_it_prints_where_the_console_and_the_traces_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = effective(tmp_path)
    assert (
        "  console         http://127.0.0.1:9094/\n"
        "  traces          http://127.0.0.1:9094/traces\n"
        "Ctrl-C stops all processes."
    ) in shown(default, CONSOLE, tracing="on")
    assert "  traces          off (by an OTEL_ variable)\n" in shown(default, CONSOLE)
    elsewhere = UpConsole("0.0.0.0:40001", 5)
    printed = shown(default, elsewhere)
    assert "  console         http://localhost:40001/; port 9094 is in use\n" in printed
    assert "  console         off (pip install 'quafka[console]')\n" in shown(default, None)
    assert "  console" not in shown(effective(tmp_path, console="false"), None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    assert "  traces          http://c:4318\n" in shown(default, CONSOLE, tracing="on")


def test_the_console_listens_at_its_port_or_any_free_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartupError, match=r"console\.listen"):
            open_console(effective(tmp_path, console="true", console_listen=address))
    default = effective(tmp_path, console="true", workers="2")
    found = open_console(default)
    assert found is not None
    with socket.socket(fileno=found.fd) as listening:
        assert os.get_inheritable(found.fd)
        assert found.address == f"127.0.0.1:{listening.getsockname()[1]}"
        assert found.address != "127.0.0.1:9094", "that is the second gateway's"


def test_without_the_extra_the_console_is_off_unless_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quafka.up_console.find_spec", lambda _name: None)
    assert open_console(effective(tmp_path)) is None
    with pytest.raises(StartupError, match=r"pip install 'quafka\[console\]'"):
        open_console(effective(tmp_path, console="true"))
    assert open_console(effective(tmp_path, console="false")) is None
