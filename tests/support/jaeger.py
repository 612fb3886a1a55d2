"""A real Jaeger in memory, where its binary is: JAEGER_BINARY names it, or it is on the PATH.

Built, where there is Go, in a checkout of github.com/jaegertracing/jaeger: `go build ./cmd/jaeger`.
JAEGER_UI may name a folder with its web page's files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import lasting_port

_SECONDS = 20.0

_CONFIG = """
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry:
    metrics: {{level: none}}
extensions:
  jaeger_query:
    storage: {{traces: memory}}
    http: {{endpoint: "127.0.0.1:{query}"}}
    grpc: {{endpoint: "127.0.0.1:{grpc}"}}
    ui: {{assets_path: "{ui}"}}
  jaeger_storage:
    backends: {{memory: {{memory: {{max_traces: 10000}}}}}}
receivers:
  otlp:
    protocols:
      http: {{endpoint: "127.0.0.1:{otlp}"}}
exporters:
  jaeger_storage_exporter: {{trace_storage: memory}}
"""


def jaeger_binary() -> str | None:
    """Where it is, if it is."""
    return os.environ.get("JAEGER_BINARY") or shutil.which("jaeger")


@dataclass(frozen=True)
class Jaeger:
    """A running one."""

    otlp: str
    page: str

    def get(self, path: str, **query: object) -> Any:
        """The answer of its HTTP API."""
        url = f"{self.page}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=5) as response:
            return json.load(response)["data"]

    def trace(self, service: str, operation: str, tags: dict[str, str], spans: int) -> Any:
        """The newest trace with such a span, as soon as it has so many spans."""
        give_up = time.monotonic() + _SECONDS
        found: list[Any] = []
        while time.monotonic() < give_up:
            found = self.get(
                "/api/traces", service=service, operation=operation, tags=json.dumps(tags)
            )
            for trace in found:
                if len(trace["spans"]) >= spans:
                    return trace
            time.sleep(0.1)
        raise AssertionError(f"not there in time; {len(found)} smaller ones are")


@contextmanager
def jaeger(binary: str, folder: Path) -> Generator[Jaeger]:
    """A Jaeger on free ports, for as long as the context lasts."""
    query, grpc, otlp = (lasting_port() for _ in range(3))
    config = folder / "jaeger.yaml"
    ui = os.environ.get("JAEGER_UI", "")
    config.write_text(_CONFIG.format(query=query, grpc=grpc, otlp=otlp, ui=ui))
    with (folder / "jaeger.log").open("wb") as log:
        process = subprocess.Popen([binary, "--config", str(config)], stdout=log, stderr=log)
    running = Jaeger(f"http://127.0.0.1:{otlp}", f"http://127.0.0.1:{query}")
    try:
        _wait_ready(running, process, folder / "jaeger.log")
        yield running
    finally:
        process.terminate()
        process.wait(_SECONDS)


def _wait_ready(running: Jaeger, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + _SECONDS
    while True:
        try:
            running.get("/api/services")
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert process.poll() is None, log.read_text()[-2_000:]
            assert time.monotonic() < give_up, log.read_text()[-2_000:]
            time.sleep(0.1)
