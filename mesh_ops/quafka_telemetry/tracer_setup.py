"""Chooses a program's tracer by the standard `OTEL_*` variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from quafka_telemetry.otlp import OtlpTracer, RecordedSpan, SpanQueue
from quafka_telemetry.otlp_environment import has_collector, speaks_grpc
from quafka_telemetry.sampling import EdgeSampling, Sampler, ratio_from
from quafka_telemetry.tracing import Tracer


def tracer_from_environment(service_name: str, edge: EdgeSampling | None = None) -> Tracer:
    """Make the tracer that the environment asks for.

    Without `OTEL_EXPORTER_OTLP_ENDPOINT` (or `..._TRACES_ENDPOINT`) nothing is sampled.
    `OTEL_EXPORTER_OTLP_PROTOCOL` is `http/protobuf` unless set to `grpc`;
    `OTEL_TRACES_SAMPLER` may be any of the standard six; `OTEL_SERVICE_NAME` overrides the
    service's name. `edge`: the sampling settings of a gateway.

    Raises:
        ValueError: a variable has a value that is not allowed; the message names both.
    """
    env = os.environ
    if not has_collector(env, "TRACES") or env.get("OTEL_TRACES_EXPORTER") == "none":
        return Tracer()
    sampled = ratio_from(env)
    if sampled is None:
        return Tracer()
    return otlp_tracer(service_name, env, Sampler(*sampled, edge or EdgeSampling()))


def otlp_tracer(service_name: str, env: Mapping[str, str], sampler: Sampler) -> Tracer:
    """Make a tracer that sends to the endpoint of the standard variables.

    Raises:
        ValueError: a variable has a value that is not allowed; the message names both.
    """
    sender = _Sender(service_name, env)
    if speaks_grpc(env, "TRACES"):
        sender.prepare()  # gRPC's exporter refuses wrong values
    queue = SpanQueue(
        sender.send,
        _number(env, "OTEL_BSP_MAX_QUEUE_SIZE", 2_048),
        _number(env, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
        _number(env, "OTEL_BSP_SCHEDULE_DELAY", 5_000) / 1000,
    )
    return OtlpTracer(sampler, queue)


class _Sender:
    """Sends spans with OpenTelemetry's SDK, which it imports when there are any: that would delay
    the start of the program."""

    def __init__(self, service_name: str, env: Mapping[str, str]) -> None:
        self._service_name = service_name
        self._env = env
        self._send: Callable[[Sequence[RecordedSpan]], bool] | None = None

    def prepare(self) -> Callable[[Sequence[RecordedSpan]], bool]:
        """Import and make what is needed. Raises ValueError: a value is not allowed."""
        from quafka_telemetry.otlp_export import sender

        self._send = sender(self._service_name, self._env)
        return self._send

    def send(self, spans: Sequence[RecordedSpan]) -> bool:
        """Send; whether they were accepted."""
        return (self._send or self.prepare())(spans)


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name) or str(default)
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{name}={text!r}: allowed is a whole number above 0")
    return int(text)
