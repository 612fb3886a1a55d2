"""Client metrics (KIP-714): GetTelemetrySubscriptions (key 71), PushTelemetry (72).

`metrics` is an OTLP message, compressed with `compression_type`.
"""

from __future__ import annotations

from quafka_proto.message import (
    Request,
    Response,
    array,
    binary,
    boolean,
    int8,
    int16,
    int32,
    string,
    uuid,
)


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    client_instance_id: bytes = uuid()


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8())
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string())


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
