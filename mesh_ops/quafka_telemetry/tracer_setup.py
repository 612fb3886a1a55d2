"""Chooses a program's tracer by the standard `OTEL_*` variables."""

from __future__ import annotations

import os

from quafka_telemetry.otlp_environment import has_collector
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
    # A program without a collector does without the queue's thread.
    from quafka_telemetry.otlp import otlp_tracer

    return otlp_tracer(service_name, env, Sampler(*sampled, edge or EdgeSampling()))
