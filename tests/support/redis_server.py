"""A real redis-server for a test, on a free port, with a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import redis

from tests.support import needs
from tests.support.ports import lasting_port

_START_SECONDS = 30.0


class RedisServer:
    """One server; `options` are words of its command line. It may be killed and started again."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        self.port = port or lasting_port()
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def source(self, stream: str, *options: str) -> str:
        """A topic's source in this server."""
        return f"redis://{self.address}/0?{'&'.join([f'stream={stream}', *options])}"

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [
                needs.program("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1",
                "--save", "", "--dir", str(self._folder), *self._options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.AuthenticationError:
                return
            except redis.RedisError:
                assert time.monotonic() < until, "redis-server does not start"
                time.sleep(0.02)

    def client(self, **options: Any) -> Any:
        """A client of redis-py, whose annotations fit no answer."""
        return redis.Redis(port=self.port, protocol=2, **options)

    def kill(self) -> None:
        """As a power cut of the program."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def load(
    client: Any, stream: str, values: Sequence[bytes], at_once: int = 5_000, **options: Any
) -> list[str]:
    """Add entries with these values, in pipelines; returns their ids."""
    ids: list[str] = []
    for start in range(0, len(values), at_once):
        pipe = client.pipeline(transaction=False)
        for value in values[start : start + at_once]:
            pipe.xadd(stream, {"value": value}, **options)
        ids += [each.decode() for each in pipe.execute()]
    return ids
