"""`make test` shows each feature and each client once through real processes.

The two tables name where. A module that starts processes is in one of them, or it is long.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.needs import TOOLS

ROOT = Path(__file__).parents[2]
PROCESSES = ("integration", "compat", "hostile", "spark")
"""Folders whose tests start brokers and gateways. In `crash`, those that do are long."""

FEATURES = {
    "clients": ["compat/test_round_trips.py", "compat/test_traps.py"],
    "records": [
        "integration/test_kafka_edge.py",
        "integration/test_fetch_semantics.py",
        "integration/test_fetch_sessions.py",
        "integration/test_old_versions.py",
        "integration/test_request_order.py",
        "integration/test_hostile_clients.py",
        "integration/test_records_by_place.py",
    ],
    "topics": [
        "integration/test_topic_admin_versions.py",
        "integration/test_cli_admin.py",
        "compat/test_compaction.py::test_a_record_without_a_key_fails_its_batch_by_name",
    ],
    "consumer groups": [
        "integration/test_group_versions.py",
        "integration/test_group_lag.py",
        "compat/test_groups.py",
        "compat/test_new_group_protocol.py",
    ],
    "share groups": [
        "integration/test_share_fetch.py",
        "integration/test_share_group_offsets.py",
    ],
    "transactions": ["integration/test_transaction_versions.py", "compat/test_transactions.py"],
    "administration": [
        "integration/test_cluster_admin_versions.py",
        "compat/test_admin.py",
        "compat/test_admin_clients.py",
    ],
    "durability": ["integration/test_kill.py", "crash/test_explorer.py"],
    "damage": ["integration/test_poison_batch.py::test_librdkafka_is_told_and_goes_on_behind_it"],
    "object store": [
        "integration/test_object_log.py::test_everything_survives_the_loss_of_the_machine",
        "integration/test_live_log.py",
        "integration/test_store_cluster.py",
        "integration/test_store_figures.py",
    ],
    "several brokers": ["integration/test_several_brokers.py"],
    "listeners": ["integration/test_listeners.py", "integration/test_tls.py"],
    "access": ["integration/test_sasl.py", "integration/test_authorization.py"],
    "tenants": [
        "integration/test_orgs.py",
        "integration/test_org_logins.py",
        "integration/test_quotas.py",
        "integration/test_rights.py",
    ],
    "Apache Kafka's folders": ["integration/test_adopted_folders.py"],
    "Redis Streams": ["integration/test_redis_streams.py"],
    "snapshots": ["integration/test_snapshots.py::test_what_the_command_says"],
    "Spark": ["spark/test_batch.py::test_rows_are_those_of_spark_s_kafka_source"],
}
"""The rows of the table in docs/features.md."""

OPERATORS = {
    "make up": ["integration/test_up.py"],
    "the command": ["integration/test_cli_records.py", "integration/test_doctor.py"],
    "workers": ["integration/test_workers.py"],
    "health": ["integration/test_health.py"],
    "metrics": ["integration/test_metrics.py", "integration/test_dashboards.py"],
    "status pages": ["integration/test_statusz.py", "integration/test_describe_gateway.py"],
    "traces": ["integration/test_traces.py::test_a_produce"],
    "attacks": ["hostile/test_catalogue.py"],
}

CLIENTS = {
    "kcat": "compat/test_kcat.py::test_round_trip",
    "librdkafka": "compat/test_round_trips.py::test_confluent_kafka",
    "kafka-python": "compat/test_round_trips.py::test_kafka_python",
    "aiokafka": "compat/test_round_trips.py::test_aiokafka",
    "kafkajs": "compat/test_kafkajs.py::test_kafkajs",
    "franz-go": "compat/test_round_trips.py::test_franz_go",
    "Kafka's Java client": "compat/test_round_trips.py::test_java",
    "command line tools": "compat/test_kafka_tools.py",
}
"""The clients of that table, and the round trip of each."""

PATHS = [
    path for each in (*FEATURES.values(), *OPERATORS.values()) for path in each
] + [*CLIENTS.values()]  # fmt: skip


def rows() -> dict[str, str]:
    """The rows of the table in docs/features.md."""
    table = (ROOT / "docs" / "features.md").read_text()
    return dict(re.findall(r"^\| ([\w' ]+) \| (.*) \|$", table, re.MULTILINE))


def short_tests(path: Path) -> set[str]:
    """The tests of a module that are not marked as long, all parameters of them."""
    body = ast.parse(path.read_text()).body
    assigned = [node for node in body if isinstance(node, ast.Assign)]
    if any(
        ast.unparse(node.targets[0]) == "pytestmark" and _is_long(node.value) for node in assigned
    ):
        return set()
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        node.name
        for node in functions
        if node.name.startswith("test_") and not any(map(_is_long, node.decorator_list))
    }


def _is_long(marks: ast.expr) -> bool:
    """Whether marks are, or begin with, that of long tests."""
    each = marks.elts if isinstance(marks, ast.List | ast.Tuple) else [marks]
    return any(ast.unparse(mark) == "pytest.mark.long" for mark in each)


def test_every_feature_has_a_path() -> None:
    assert FEATURES.keys() == rows().keys() - {"not yet"}


def test_every_client_has_a_round_trip() -> None:
    tested, _, _ = rows()["clients"].partition(", unmodified")
    for client in CLIENTS:
        assert client in tested
    assert len(re.split(r", | and ", tested)) == len(CLIENTS), tested


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_not_long(path: str) -> None:
    module, _, name = path.partition("::")
    tests = short_tests(ROOT / "tests" / module)
    assert name in tests if name else tests


@pytest.mark.parametrize("folder", PROCESSES)
def test_what_starts_processes_is_a_path_or_long(folder: str) -> None:
    """A new module of these folders: see CONTRIBUTING, `What make test runs`."""
    named = {path.partition("::")[0] for path in PATHS}
    modules = (ROOT / "tests" / folder).glob("test_*.py")
    short = {f"{folder}/{module.name}" for module in modules if short_tests(module)}
    assert short <= named


def test_every_optional_tool_is_needed_by_a_test() -> None:
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    used = (ROOT / "tests/support/needs.py").read_text().partition("OF_FIXTURES")[2]
    for tool in TOOLS:
        assert any(f'"{tool}"' in text for text in (*sources, used)), tool
