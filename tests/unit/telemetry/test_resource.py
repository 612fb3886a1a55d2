"""Traces and metrics name the process that they come from."""

from __future__ import annotations

import os

import pytest

from quafka_telemetry.resource import process_resource
from quafka_telemetry.version import version


def test_each_process_is_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    own = process_resource("gateway", {}).attributes
    assert own["service.name"] == "gateway"
    assert own["service.version"] == version()
    assert (
        process_resource("broker", {}).attributes["service.instance.id"]
        == (own["service.instance.id"])
    ), "the traces and the metrics of a process have one"
    monkeypatch.setattr(os, "getpid", lambda: -1)
    forked = process_resource("gateway", {}).attributes
    assert forked["service.instance.id"] != own["service.instance.id"]


def test_what_the_environment_names_stays() -> None:
    given = "service.instance.id=mine, service.version=7"
    env = {"OTEL_RESOURCE_ATTRIBUTES": given, "OTEL_SERVICE_NAME": "edge"}
    found = process_resource("gateway", env).attributes
    assert found["service.instance.id"] == "mine"
    assert found["service.version"] == "7"
    assert found["service.name"] == "edge"
