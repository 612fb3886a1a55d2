"""A real Prometheus server that scrapes a cluster with the configuration that is shipped."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.support.cluster import Cluster
from tests.support.needs import program
from tests.support.ports import lasting_port

SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus"
_SECONDS = 30


class PrometheusServer:
    """As a context manager. Needs prometheus."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._binary = program("prometheus")
        self._folder = folder
        config = (SHIPPED / "prometheus.yml").read_text()
        targets = {"gateway:9093": cluster.gateway, "broker:9193": cluster.broker}
        for name, process in targets.items():
            assert name in config
            config = config.replace(name, process.ready["operations"])
        config = config.replace("15s", "1s").replace("60s", "1s").replace("30s", "1s")
        (folder / "prometheus.yml").write_text(config)
        shutil.copy(SHIPPED / "alerts.yml", folder)
        self._address = f"127.0.0.1:{lasting_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._binary, f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'tsdb'}",
                    f"--web.listen-address={self._address}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def get(self, path: str, **parameters: str) -> Any:
        """What its API answers."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # raises where it is no success
            return json.loads(answer.read())["data"]

    def query(self, expression: str) -> list[Any]:
        """The result of a PromQL expression now."""
        found: list[Any] = self.get("query", query=expression)["result"]
        return found

    def wait_for(self, expression: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Until it has a result."""
        give_up = time.monotonic() + _SECONDS
        while True:
            try:
                if self.query(expression):
                    return
            except OSError:
                pass  # it is not up yet
            assert time.monotonic() < give_up, f"Prometheus has no {expression}"
            meanwhile()
            time.sleep(0.1)
