"""What the traces and metrics of one process say about it: OpenTelemetry's resource."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from urllib.parse import unquote
from uuid import uuid4

from opentelemetry.sdk.environment_variables import OTEL_RESOURCE_ATTRIBUTES
from opentelemetry.sdk.resources import (
    SERVICE_INSTANCE_ID,
    SERVICE_NAME,
    SERVICE_VERSION,
    Resource,
)

from quafka_telemetry.version import version


def process_resource(
    service_name: str, env: Mapping[str, str], schema_url: str | None = None
) -> Resource:
    """The service's name, version and instance. What OTEL_RESOURCE_ATTRIBUTES says stays.

    The instance is the same for all telemetry of a process, and another one for each worker of a
    gateway: the SDK's own would be inherited by a fork.
    """
    attributes = {SERVICE_INSTANCE_ID: _instance(os.getpid()), SERVICE_VERSION: version()}
    for pair in env.get(OTEL_RESOURCE_ATTRIBUTES, "").split(","):
        name, _, value = pair.strip().partition("=")
        if name in attributes:
            attributes[name] = unquote(value)
    attributes[SERVICE_NAME] = env.get("OTEL_SERVICE_NAME", service_name)
    return Resource.create(attributes, schema_url)


@cache
def _instance(_process: int) -> str:
    return str(uuid4())
