"""What a plain start does not import: libraries and modules of features that are not in use."""

from __future__ import annotations

import subprocess
import sys

import pytest

_OF_NEITHER = {
    "confluent_kafka",
    "joserfc",
    "numpy",
    "obstore",
    "opentelemetry",
    "pyarrow",
    "redis",
}
UNUSED = {
    "quafka_gateway.server": _OF_NEITHER
    | {"http.client", "quafka_broker.server", "quafka_objects.folder", "urllib.request"},
    "quafka_broker.server": _OF_NEITHER
    | {
        "quafka_broker.cluster.member",
        "quafka_broker.compaction.offset_map",
        "quafka_broker.imports",
        "quafka_broker.kafka_logs",
        "quafka_broker.shard.stored_log",
        "quafka_broker.sources.kafka.source",
        "quafka_broker.sources.redis.partition",
        "quafka_gateway.api",
    },
}


@pytest.mark.parametrize("program", UNUSED)
def test_a_plain_start_imports_nothing_for_unused_features(program: str) -> None:
    code = (
        f"import quafka.cli, {program}, sys; print(*sorted({UNUSED[program]} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []
