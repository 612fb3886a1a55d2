"""The health check of the containers, as a process."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from quafka_telemetry.operations import Operations
from tests.unit.deploy.test_containers import HEALTH


async def test_the_health_check_says_whether_it_is_ready() -> None:
    problems: dict[str, str] = {}
    operations = Operations(lambda: problems)
    _, port = await operations.start("127.0.0.1", 0)

    async def check() -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, HEALTH), stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "QUAFKA_OPS_LISTEN": f"0.0.0.0:{port}"},
        )  # fmt: skip
        out, _ = await process.communicate()
        return process.returncode, out.decode()

    assert await check() == (0, "")
    problems["broker"] = "draining"
    code, said = await check()
    assert (code, json.loads(said)["problems"]) == (1, problems)
    await operations.close()
    assert (await check())[0] == 1
