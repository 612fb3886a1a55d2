"""What an exporter imports: gRPC's library is larger than all others together."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MADE = {
    "TRACES": "from quafka_telemetry.tracer_setup import tracer_from_environment\n"
    "made = tracer_from_environment('quafka-test')\n"
    "import sys; assert 'requests' not in sys.modules, 'before there are spans'\n"
    "made.root('connect', 0).end()\n"
    "made.shutdown()",
    "METRICS": "from quafka_telemetry.metrics import Metrics\n"
    "from quafka_telemetry.otlp_metrics import push_from_environment\n"
    "made = push_from_environment('quafka-test', Metrics())",
}
LOADED = "import sys; print(type(made).__name__, *sorted({'grpc', 'requests'} & set(sys.modules)))"


@pytest.mark.parametrize(
    ("protocol", "library"),
    [(None, "requests"), ("http/protobuf", "requests"), ("grpc", "grpc")],
)
@pytest.mark.parametrize("signal", MADE)
def test_only_the_library_of_the_protocol_is_imported(
    signal: str, protocol: str | None, library: str
) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    asked = {} if protocol is None else {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    shown = subprocess.check_output(
        [sys.executable, "-c", f"{MADE[signal]}\n{LOADED}"],
        env={**clean, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **asked},
        text=True,
    )
    kind = {"TRACES": "OtlpTracer", "METRICS": "MetricsPush"}[signal]
    assert shown.split() == [kind, library]
