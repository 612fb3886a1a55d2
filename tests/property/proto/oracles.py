"""Which messages and versions other people's codecs know, and where."""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

import kafka.protocol.old
from kafka.protocol.api_message import ApiMessage

from quafka_proto.message import Message, Request
from tests.property.proto.messages import CASES

Case = tuple[type[Message], int]
KAFKA_PYTHON_ERRS = {"DescribeLogDirsRequest_v0"}
"""Its older classes that differ from Kafka: here, partitions are a number instead of an array."""


def kio_cases() -> list[Case]:
    """The messages of kio: every version of Kafka 4.3."""
    schema = files("kio.schema")
    paths = {case: "/".join(_kio_module(*case).split(".")[2:]) + ".py" for case in CASES}
    return [case for case, path in paths.items() if schema.joinpath(path).is_file()]


@cache
def kio_entity(message: type[Message], version: int) -> Any:
    """kio's class for this version of a message."""
    return getattr(import_module(_kio_module(message, version)), message.__name__)


def _kio_module(message: type[Message], version: int) -> str:
    kind = "request" if issubclass(message, Request) else "response"
    stem = re.sub(r"(?<!^)(?=[A-Z])", "_", message.__name__).lower().rpartition("_")[0]
    return f"kio.schema.{stem}.v{version}.{kind}"


def kafka_python_cases() -> list[Case]:
    """The messages of kafka-python: Kafka 4.x by Kafka's definitions, older ones by hand."""
    return [case for case in CASES if kafka_python_class(*case) or kafka_python_old_class(*case)]


def kafka_python_class(message: type[Message], version: int) -> Any:
    """kafka-python's class for all versions of a message; None where it lacks this one.

    It reads lower versions than the definition says, but the definition has lost their fields.
    """
    theirs = _classes().get(message.__name__)
    valid = theirs.valid_versions if theirs else (1, 0)
    return theirs if valid[0] <= version <= valid[1] else None


@cache
def kafka_python_old_class(message: type[Message], version: int) -> Any:
    """kafka-python's older class for one version; None where it has none."""
    if f"{message.__name__}_v{version}" in KAFKA_PYTHON_ERRS:
        return None
    for module in pkgutil.iter_modules(kafka.protocol.old.__path__, "kafka.protocol.old."):
        theirs = getattr(import_module(module.name), f"{message.__name__}_v{version}", None)
        if theirs:
            return theirs
    return None


@cache
def _classes() -> dict[str, Any]:
    for module in ("admin", "api_message", "consumer", "metadata", "producer", "sasl"):
        import_module(f"kafka.protocol.{module}")
    return {theirs.__name__: theirs for theirs in ApiMessage.__subclasses__()}
