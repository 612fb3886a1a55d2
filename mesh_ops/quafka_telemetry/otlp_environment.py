"""The endpoint and protocol of each signal, from the standard `OTEL_*` variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Signal = Literal["TRACES", "METRICS"]


def has_collector(env: Mapping[str, str], signal: Signal) -> bool:
    """Whether the signal has an endpoint and the SDK is not disabled."""
    disabled = env.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return bool(endpoint(env, signal)) and not disabled


def endpoint(env: Mapping[str, str], signal: Signal) -> str:
    """The signal's collector; "": none is configured."""
    return _value(env, signal, "ENDPOINT") or ""


def speaks_grpc(env: Mapping[str, str], signal: Signal) -> bool:
    """Whether the signal is sent by gRPC instead of HTTP.

    Raises:
        ValueError: the variable has a value that is not allowed; the message names both.
    """
    protocol = _value(env, signal, "PROTOCOL") or "http/protobuf"
    if protocol not in ("http/protobuf", "grpc"):
        raise ValueError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: allowed are http/protobuf and grpc"
        )
    return protocol == "grpc"


def _value(env: Mapping[str, str], signal: Signal, name: str) -> str | None:
    return env.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}") or env.get(f"OTEL_EXPORTER_OTLP_{name}")
